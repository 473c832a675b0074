#include "kernels/cupti/launch_recorder.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace kvroof {

// One record for each cause; one of the launch's own cause where it declares no bytes. The first has the operations.
void LaunchRecorder::add(const LaunchMeaning& meaning, std::uint64_t node, bool first,
                         std::vector<OperatorRecord>& records) const {
  OperatorRecord record;
  record.graph_node = node;
  record.step = step_;
  record.layer = meaning.layer;
  record.sequence = meaning.sequence;
  record.name = meaning.operation;
  record.declared_flops = first ? meaning.declared.flops : 0;
  const ByteCounters& bytes = meaning.declared.bytes;
  for (std::size_t c = 0; c < kCauses; ++c) {
    if (bytes.bytes[c] == 0 && (bytes.total() > 0 || c != static_cast<std::size_t>(meaning.cause))) continue;
    record.cause = kCauseNames[c];
    record.declared_bytes = first ? bytes.bytes[c] : 0;
    records.push_back(record);
    record.declared_flops = 0;
  }
}

void LaunchRecorder::begin_launch(const LaunchMeaning& meaning) {
  in_launch_ = true;
  if (capturing_ || recorder_ == nullptr) return;
  std::vector<OperatorRecord> records;
  add(meaning, 0, true, records);
  recorder_->begin_launch(std::move(records));
}

void LaunchRecorder::end_launch() {
  in_launch_ = false;
  if (capturing_) {
    ++captured_;
  } else if (recorder_ != nullptr) {
    recorder_->end_launch();
  }
}

void LaunchRecorder::begin_capture() {
  capturing_ = true;
  captured_ = 0;
  created_.clear();
  nodes_.clear();
}

void LaunchRecorder::created(std::uint64_t node) {
  if (capturing_ && in_launch_) created_[node] = {captured_, node};
}

void LaunchRecorder::cloned(std::uint64_t node, std::uint64_t from) {
  const auto found = created_.find(from);
  if (!capturing_ || found == created_.end()) return;
  const Node original = found->second;
  created_[node] = original;
  // A copy that is copied again is not what runs.
  const auto copy =
      std::find_if(nodes_.begin(), nodes_.end(), [from](const auto& known) { return known.first == from; });
  if (copy != nodes_.end()) {
    copy->first = node;
  } else {
    nodes_.emplace_back(node, original);
  }
}

// Where CUPTI told of no copy of a node, records of its kernels can only name the node itself.
void LaunchRecorder::end_capture() {
  capturing_ = false;
  std::set<std::uint64_t> copied;
  for (const auto& [node, of] : nodes_) copied.insert(of.captured);
  for (const auto& [node, of] : created_) {
    if (of.captured == node && !copied.contains(node)) nodes_.emplace_back(node, of);
  }
  created_.clear();
}

void LaunchRecorder::begin_graph_launch(std::span<const LaunchMeaning> meanings) {
  if (recorder_ == nullptr) return;
  std::vector<OperatorRecord> records;
  records.reserve(2 * nodes_.size());  // most launches move bytes for one cause or two
  // Several nodes may belong to a launch that a library makes. Of two copies of the first either may be the one that
  // runs: a record without its kernel is nobody's.
  std::vector<std::optional<std::uint64_t>> first(meanings.size());
  for (const auto& [node, of] : nodes_) {
    if (of.launch >= meanings.size()) continue;
    if (!first[of.launch]) first[of.launch] = of.captured;
    add(meanings[of.launch], node, first[of.launch] == of.captured, records);
  }
  unexplained_ += std::find(first.begin(), first.end(), std::nullopt) != first.end();
  recorder_->begin_launch(std::move(records));
}

}  // namespace kvroof
