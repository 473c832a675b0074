#include "sim/policy/scores_by_age.hpp"

#include <algorithm>

namespace kvroof {

void drop_lowest(std::span<const float> scores, std::size_t first, std::size_t last, std::size_t count,
                 std::vector<SlotId>& drop) {
  const auto before = static_cast<std::ptrdiff_t>(drop.size());
  for (std::size_t i = first; i < last; ++i) drop.emplace_back(static_cast<std::uint32_t>(i));
  const auto begin = drop.begin() + before;
  const auto end = begin + static_cast<std::ptrdiff_t>(std::min(count, last - first));
  std::nth_element(begin, end, drop.end(), [&](SlotId a, SlotId b) {
    const float x = scores[a.value];
    const float y = scores[b.value];
    return x != y ? x < y : a < b;
  });
  drop.erase(end, drop.end());
}

void ScoresByAge::give_up(std::span<const SlotId> indices, std::vector<SlotId>& victims) {
  by_slot_.resize(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) by_slot_[order_[i].value] = scores[i];
  for (const SlotId index : indices) victims.push_back(order_[index.value]);
}

void ScoresByAge::give_up_lowest(std::size_t count, std::vector<SlotId>& victims) {
  drop_.clear();
  drop_lowest(scores, 0, scores.size(), count, drop_);
  give_up(drop_, victims);
}

}  // namespace kvroof
