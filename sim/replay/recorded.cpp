#include "sim/replay/recorded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvroof {

RecordedEvictions::RecordedEvictions(std::span<const EvictionRecord> evictions, std::uint32_t heads) : heads_(heads) {
  for (const EvictionRecord& eviction : evictions) {
    layer_ = eviction.layer;
    if (eviction.head >= heads_.size()) heads_.resize(eviction.head + 1);
    heads_[eviction.head].entries.push_back({eviction.step, TokenPos(eviction.position)});
  }
}

void RecordedEvictions::note_difference(StepId step, HeadId head, std::string what) {
  ++result_.differences;
  if (!result_.first_difference.empty()) return;
  result_.first_difference = fmt::format("layer {}, step {}, head {}: {}", layer_, step.value, head.value, what);
}

void RecordedEvictions::review(StepId step, HeadId head, std::span<const TokenPos> positions,
                               std::vector<SlotId>& victims) {
  ++result_.decisions;
  Head& recorded = heads_[head.value];
  ours_.clear();
  theirs_.clear();
  for (const SlotId victim : victims) ours_.push_back(positions[victim.value]);
  // A streamed prompt evicts many times within step 0: the next as many entries belong to this row.
  for (std::size_t i = recorded.next; i < recorded.entries.size() && theirs_.size() < ours_.size(); ++i) {
    if (recorded.entries[i].step != step.value) break;
    theirs_.push_back(recorded.entries[i].position);
  }
  recorded.next += theirs_.size();
  std::sort(ours_.begin(), ours_.end());
  std::sort(theirs_.begin(), theirs_.end());
  if (ours_ == theirs_) return;
  const auto first = std::mismatch(ours_.begin(), ours_.end(), theirs_.begin(), theirs_.end());
  note_difference(step, head,
                  first.second == theirs_.end()
                      ? fmt::format("the replay gives up token {}, the recording fewer", first.first->value)
                      : fmt::format("the replay gives up token {}, the recording token {}", first.first->value,
                                    first.second->value));
  if (ours_.size() != theirs_.size()) return;
  std::vector<SlotId> slots;
  for (std::uint32_t slot = 0; slot < positions.size(); ++slot) {
    if (std::binary_search(theirs_.begin(), theirs_.end(), positions[slot])) slots.emplace_back(slot);
  }
  if (slots.size() == theirs_.size()) victims = std::move(slots);
}

Reproduction RecordedEvictions::finish() {
  for (std::uint32_t h = 0; h < heads_.size(); ++h) {
    Head& head = heads_[h];
    if (head.next == head.entries.size()) continue;
    const Entry& entry = head.entries[head.next];
    ++result_.decisions;
    note_difference(StepId(entry.step), HeadId(h),
                    fmt::format("the recording gives up token {}, the replay nothing more", entry.position.value));
    head.next = head.entries.size();
  }
  return result_;
}

}  // namespace kvroof
