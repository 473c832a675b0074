// Counts kernels that no operator explains: which node of a graph a kernel was, and which launch, is CUPTI's word.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <unordered_map>

#include "traces/forwarding_sink.hpp"

namespace kvroof {

// Hands everything on. `sink` must outlive it; records come from one thread at a time, in any order.
class ExplainedSink final : public ForwardingSink {
 public:
  explicit ExplainedSink(ProfileSink& sink) : sink_(sink) {}

  using ForwardingSink::add;
  void add(const KernelRecord& r) override {
    ++kernels_;
    if (r.work.graph_node != 0) ++nodes_[r.work.graph_node].kernels;
    ForwardingSink::add(r);
  }
  void add(const OperatorRecord& r) override {
    ++operators_;
    if (r.graph_node != 0) nodes_[r.graph_node].explained = true;
    ForwardingSink::add(r);
  }

  // After the last record: kernels of nodes that no operator names, or all where there are no operators at all.
  [[nodiscard]] std::uint64_t unexplained() const {
    if (operators_ == 0) return kernels_;
    std::uint64_t kernels = 0;
    for (const auto& [node, of] : nodes_) kernels += of.explained ? 0 : of.kernels;
    return kernels;
  }
  // Empty: none is unexplained.
  [[nodiscard]] std::string problem() const {
    const std::uint64_t kernels = unexplained();
    if (kernels == 0) return {};
    return fmt::format("{} of {} kernels have no operator: CUPTI {}", kernels, kernels_,
                       operators_ == 0 ? "gave no ids of launches" : "named nodes of graphs that it had not told of");
  }

 private:
  struct Node {
    std::uint64_t kernels = 0;
    bool explained = false;
  };
  ProfileSink& to() override { return sink_; }

  ProfileSink& sink_;
  std::uint64_t kernels_ = 0, operators_ = 0;
  std::unordered_map<std::uint64_t, Node> nodes_;
};

}  // namespace kvroof
