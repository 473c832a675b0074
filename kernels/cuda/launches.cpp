#include "kernels/cuda/launches.hpp"

namespace kvroof::cuda {

void Launches::begin(LaunchMeaning& meaning, const DeclaredWork* of_step) {
  meaning.sequence = sequence_;
  if (of_step != nullptr) meaning.declared = *of_step;
  if (capturing_ != nullptr) {
    capturing_->nodes.push_back({meaning, of_step});
  } else {
    counters_ += meaning.declared.bytes;
  }
  if (observer_ != nullptr) observer_->begin_launch(meaning);
}

void Launches::make(const DeclaredGraph& graph) {
  std::vector<LaunchMeaning> meanings;
  for (const DeclaredGraph::Node& node : graph.nodes) {
    counters_ += node.of_step != nullptr ? node.of_step->bytes : node.meaning.declared.bytes;
    if (observer_ == nullptr) continue;
    meanings.push_back(node.meaning);
    if (node.of_step != nullptr) meanings.back().declared = *node.of_step;
  }
  if (observer_ != nullptr) observer_->begin_graph_launch(meanings);
  graph.launches.run(stream_);
  if (observer_ != nullptr) observer_->end_launch();
}

}  // namespace kvroof::cuda
