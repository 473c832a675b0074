// GrowingScores: scores of one storage head that every row adds to, and the lowest of them, sought among a few.
#pragma once

#include <array>
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
  void clear() { covered_ = 0; }
  // Finds them anew; `least` as of the scores and candidates.
  void watch(std::span<const float> scores, const Candidates& candidates, const LeastOfBlocks& least);
  // As kvroof::lowest(), if the lowest is surely watched. Since watch() no score fell but for tokens admitted after it,
  // and every token that is held lies in the slot that it lay in then.
  std::optional<SlotId> lowest(std::span<const float> scores, const Candidates& candidates);

 private:
  static constexpr std::uint32_t kAhead = 64;  // tokens that soon become candidates are watched as well
  static constexpr SlotId kNone = SlotId(0xffffffffU);
  struct Entry {
    TokenPos position;
    SlotId slot;
  };
  std::uint32_t covered_ = 0;  // of tokens from here on nothing is known
  std::uint32_t ahead_from_ = 0, next_ = 0;  // the first of the tokens ahead, and of those that are no candidates yet
  std::uint32_t rest_ = 0;     // calls of watch() that find nothing, since the last one did not
  std::size_t slots_ = 0;      // there were
  float limit_ = 0;
  std::vector<SlotId> found_;
  std::vector<Entry> entries_;  // candidates
  std::array<SlotId, kAhead> ahead_{};  // slots of the tokens ahead; kNone: not among the lowest
};

class GrowingScores {
 public:
  void admit(SlotId slot) { column_.admit(slot); }
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
