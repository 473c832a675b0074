#include "sim/policy/prompt_scorer.hpp"

#include <algorithm>
#include <limits>

namespace kvroof {

void PromptScorer::evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) {
  slots_by_age(request.positions, order_);
  score(head, request, order_, scores_);
  check(scores_.size() == order_.size(), "a score for each token");
  by_slot_.resize(scores_.size());
  for (std::size_t i = 0; i < scores_.size(); ++i) by_slot_[order_[i].value] = scores_[i];
  drop_.clear();
  choose(request, scores_, drop_);
  for (const SlotId index : drop_) victims.push_back(order_[index.value]);
}

double PromptScorer::score_gap(HeadId, SlotId a, SlotId b) const {
  return relative_gap(by_slot_[a.value], by_slot_[b.value]);
}

void PromptScorer::choose(const EvictRequest& request, std::span<const float> scores, std::vector<SlotId>& drop) {
  if (chunk_ > 0) return choose_in_chunks(request, scores, drop);
  drop_lowest(scores, 0, scores.size(), request.excess, drop);
}

// One token a chunk may be more than the budget: then the lowest of those go as well.
void PromptScorer::choose_in_chunks(const EvictRequest& request, std::span<const float> scores,
                                    std::vector<SlotId>& drop) const {
  const std::size_t n = scores.size();
  const double share = kept_share(budget_, request.budget, static_cast<std::uint32_t>(n));
  for (std::size_t first = 0; first < n; first += chunk_) {
    const std::size_t length = std::min<std::size_t>(chunk_, n - first);
    const auto stay = std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(length) * share));
    drop_lowest(scores, first, first + length, length - stay, drop);
  }
  if (drop.size() < request.excess) drop_more(scores, request.excess, drop);
}

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

void drop_more(std::span<const float> scores, std::size_t count, std::vector<SlotId>& drop) {
  std::vector<float> left(scores.begin(), scores.end());
  for (const SlotId index : drop) left[index.value] = std::numeric_limits<float>::infinity();
  drop_lowest(left, 0, left.size(), count - drop.size(), drop);
}

double kept_share(const Budget& budget, std::uint32_t k, std::uint32_t n) {
  return budget.kind == Budget::Kind::kCompression ? 1 - budget.value : static_cast<double>(k) / n;
}

PolicyTraits prompt_scorer_traits(const PolicySpec& spec, TensorNeed tensors) {
  (void)spec.count("chunk", 0);
  PolicyTraits t;
  t.tensors = tensors;
  const bool by_query_head = spec.choice("group", {"mean", "none"}, "mean") == "none";
  t.unit = by_query_head ? StorageUnit::kQueryHead : StorageUnit::kKvHead;
  t.schedule = Schedule::kPrefillOnly;
  return t;
}

bool yes_or_no(const PolicySpec& spec, std::string_view key, bool fallback) {
  return spec.choice(key, {"yes", "no"}, fallback ? "yes" : "no") == "yes";
}

}  // namespace kvroof
