// ScoresByAge: what the tokens of a head are worth, in the order of their age, and which of them go.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sim/policy/scores.hpp"

namespace kvroof {

// Appends the `count` lowest of scores [first, last), of equals those that come first, as indices.
void drop_lowest(std::span<const float> scores, std::size_t first, std::size_t last, std::size_t count,
                 std::vector<SlotId>& drop);

class ScoresByAge {
 public:
  // Begins anew with the tokens that a head holds.
  void begin(std::span<const TokenPos> positions) { slots_by_age(positions, order_); }
  // Their slots, oldest first.
  [[nodiscard]] std::span<const SlotId> order() const { return order_; }
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  // One for each, in that order; the policy writes them.
  std::vector<float> scores;

  // Appends the slots of the tokens with these indices, which go by what the scores are now.
  void give_up(std::span<const SlotId> indices, std::vector<SlotId>& victims);
  // Of the `count` lowest.
  void give_up_lowest(std::size_t count, std::vector<SlotId>& victims);
  // How far apart the scores of two slots were when tokens last went (EvictionPolicy::score_gap).
  [[nodiscard]] double gap(SlotId a, SlotId b) const { return relative_gap(by_slot_[a.value], by_slot_[b.value]); }

 private:
  std::vector<SlotId> order_, drop_;
  std::vector<float> by_slot_;
};

}  // namespace kvroof
