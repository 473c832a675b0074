// GrowingScores: scores of one storage head that every row adds to, and the lowest of them, sought among a few.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/policy/scores.hpp"

namespace kvroof {

// The slots with the lowest scores. Where scores only grow, what is not among them stays above the limit that they were
// found with, so that the lowest score of all is theirs as long as it is below that limit.
class WatchedSlots {
 public:
  void clear() { watches_ = follows_ = false; }
  // A token comes, in the order of positions.
  void admit(SlotId slot, TokenPos position) {
    if (!follows_) return;
    if (position.value != newer_from_ + newer_.size()) return clear();
    newer_.push_back(slot);
  }
  // Finds them anew; `least` as of the scores and candidates.
  void watch(std::span<const float> scores, const Candidates& candidates, const LeastOfBlocks& least);
  // As kvroof::lowest(), if the lowest is surely watched. Since watch() no score fell but for tokens admitted after it,
  // and every token that is held lies in the slot that it lay in then or was admitted to.
  std::optional<SlotId> lowest(std::span<const float> scores, const Candidates& candidates);

 private:
  static constexpr SlotId kNone = SlotId(0xffffffffU);
  struct Entry {
    TokenPos position;
    SlotId slot;
  };
  void follow(const Candidates& candidates);
  void take_candidates(std::span<const float> scores, const Candidates& candidates);

  bool watches_ = false;
  std::uint32_t rest_ = 0;  // calls of watch() that find nothing, since the last one did not
  std::size_t slots_ = 0;   // that entries may lie in
  float limit_ = 0;
  std::vector<SlotId> found_;
  std::vector<Entry> entries_;  // candidates
  bool follows_ = false;        // where each token lies that is no candidate yet
  std::uint32_t newer_from_ = 0, next_ = 0;  // the first of those that are known, and of those that are no candidates
  std::vector<SlotId> newer_;                // of the tokens from newer_from_ on; kNone: not held
};

class GrowingScores {
 public:
  void admit(SlotId slot, TokenPos position) {
    column_.admit(slot);
    watched_.admit(slot, position);
  }
  void move(std::span<const SlotMove> moves) {
    if (!moves.empty()) watched_.clear();
    column_.move(moves);
  }
  // A row of weights ≥ 0 over `slots` slots.
  void add(const RowsToAdd& rows, std::uint32_t slots);
  // As kvroof::lowest() over the scores.
  void lowest(const Candidates& candidates, std::uint32_t count, std::vector<SlotId>& victims);
  [[nodiscard]] std::span<const float> of(std::uint32_t slots) const { return column_.column(0, slots); }
  [[nodiscard]] float at(SlotId slot) const { return column_.at(0, slot); }

 private:
  SlotColumns<float> column_{1};
  bool falls_ = false;  // rows make what there is less
  WatchedSlots watched_;
};

}  // namespace kvroof
