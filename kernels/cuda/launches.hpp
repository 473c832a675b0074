// Every launch of the back end passes here: what it moves is counted once, and told to whoever observes.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"
#include "kernels/engine/launch_observer.hpp"
#include "sim/core/ids.hpp"

namespace kvroof::cuda {

// Launches that were captured once, and what each means.
struct DeclaredGraph {
  struct Node {
    LaunchMeaning meaning;
    const DeclaredWork* of_step = nullptr;  // as in Launch
  };
  LaunchGraph launches;
  std::vector<Node> nodes;
};

class Launches {
 public:
  // The stream must outlive this.
  explicit Launches(Stream& stream) : stream_(stream) {}

  // May be null. To one that wants every launch by itself none may be made ready while the one before it runs.
  void set_observer(LaunchObserver* observer) {
    observer_ = observer;
    stream_.one_by_one = one_by_one();
  }
  [[nodiscard]] bool one_by_one() const { return observer_ != nullptr && observer_->one_by_one(); }
  // Of which sequence launches are from now on; -1: of several.
  void set_sequence(std::int32_t sequence) { sequence_ = sequence; }

  // Notes what `launches` asks the stream for, and makes none of it. False: there is no memory to note it in.
  template <class F>
  [[nodiscard]] bool capture(DeclaredGraph& graph, const F& launches) {
    graph.nodes.clear();
    if (observer_ != nullptr) observer_->begin_capture();
    const Capturing capturing(*this, graph);
    return graph.launches.capture(stream_, launches);
  }
  void make(const DeclaredGraph& graph);

  // Bytes that move without a launch of this engine's kernels.
  void count(Cause cause, std::uint64_t bytes) { counters_.add(cause, bytes); }
  // Bytes by cause since the last call.
  ByteCounters take_counters() { return std::exchange(counters_, {}); }

 private:
  friend class Launch;
  class Capturing {
   public:
    Capturing(Launches& launches, DeclaredGraph& graph) : launches_(launches) { launches_.capturing_ = &graph; }
    ~Capturing() {
      launches_.capturing_ = nullptr;
      if (launches_.observer_ != nullptr) launches_.observer_->end_capture();
    }
    Capturing(const Capturing&) = delete;
    Capturing& operator=(const Capturing&) = delete;

   private:
    Launches& launches_;
  };
  void begin(LaunchMeaning& meaning, const DeclaredWork* of_step);

  Stream& stream_;
  LaunchObserver* observer_ = nullptr;
  DeclaredGraph* capturing_ = nullptr;
  std::int32_t sequence_ = -1;
  ByteCounters counters_;
};

// The launch of one kernel, or of the few that make a product together, which is asked for while this lives.
class Launch {
 public:
  Launch(Launches& launches, LaunchMeaning meaning) : launches_(launches) { launches_.begin(meaning, nullptr); }
  // Of work that differs from step to step: it is looked at whenever the launch is made, and must live as long as a
  // graph that the launch is captured in.
  Launch(Launches& launches, LaunchMeaning meaning, const DeclaredWork& of_step) : launches_(launches) {
    launches_.begin(meaning, &of_step);
  }
  ~Launch() {
    if (launches_.observer_ != nullptr) launches_.observer_->end_launch();
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

 private:
  Launches& launches_;
};

}  // namespace kvroof::cuda
