// Gives what the engine says of its launches to the activity recorder: by launch, and by node within a graph.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cupti/activity_recorder.hpp"
#include "kernels/engine/launch_observer.hpp"

namespace kvroof {

// Nodes are known by the callbacks of CUPTI: one when a launch is captured, and one for each copy when the graph is
// instantiated, be it of a copy. Launches of a graph share a correlation; the node tells them apart.
class LaunchRecorder final : public LaunchObserver, public GraphNodes {
 public:
  // Launches are told to it from now on; null: to nobody.
  void set_recorder(ActivityRecorder* recorder) { recorder_ = recorder; }
  // The engine's step that launches belong to from now on.
  void set_step(std::uint32_t step) { step_ = step; }

  void begin_launch(const LaunchMeaning& meaning) override;
  void end_launch() override;
  void begin_capture() override;
  void end_capture() override;
  void begin_graph_launch(std::span<const LaunchMeaning> meanings) override;

  void created(std::uint64_t node) override;
  void cloned(std::uint64_t node, std::uint64_t from) override;

  // Launches of a graph some of whose captured launches have no node: their kernels have no meaning.
  [[nodiscard]] std::uint64_t unexplained() const { return unexplained_; }

 private:
  struct Node {
    std::uint32_t launch = 0;
    std::uint64_t captured = 0;  // the node that it is, or that it was copied from in the end
  };
  // `first`: of a launch's nodes, whose record says what all of them move together.
  void add(const LaunchMeaning& meaning, std::uint64_t node, bool first, std::vector<OperatorRecord>& records) const;

  ActivityRecorder* recorder_ = nullptr;
  std::uint32_t step_ = 0;
  bool capturing_ = false, in_launch_ = false;
  std::uint32_t captured_ = 0;  // launches of the last graph
  std::map<std::uint64_t, Node> created_;               // captured or copied, while capturing
  std::vector<std::pair<std::uint64_t, Node>> nodes_;  // the copies of the last graph, or what has none
  std::uint64_t unexplained_ = 0;
};

}  // namespace kvroof
