#include "sim/policy/page_victims.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/policy/head_tensors.hpp"

namespace kvroof {

void PageVictims::choose(std::span<const float> scores, const Candidates& candidates, std::uint32_t count,
                         std::vector<SlotId>& victims) {
  decided_.clear();
  pages_.clear();
  if (page_ > 1) add_up(scores, candidates);
  const std::size_t before = victims.size();
  std::ranges::sort(pages_, [](const Page& a, const Page& b) {
    return a.sum != b.sum ? a.sum < b.sum : a.first < b.first;
  });
  std::uint32_t gone = 0;
  for (auto page = pages_.begin(); page != pages_.end() && gone < count; ++page) {
    victims.insert(victims.end(), by_age_.begin() + page->first, by_age_.begin() + page->first + page->count);
    gone += page->count;
  }
  if (gone >= count) return;
  if (gone == 0) {
    decided_.clear();
    return lowest(scores, candidates, count, victims);
  }
  left_.assign(scores.begin(), scores.end());
  for (const SlotId slot : std::span(victims).subspan(before)) {
    left_[slot.value] = std::numeric_limits<float>::infinity();
  }
  for (std::size_t s = 0; s < left_.size(); ++s) {
    if (std::isfinite(left_[s])) decided_[s] = scores[s];  // what is left is told apart by its own scores
  }
  lowest(left_, candidates, count - gone, victims);
}

void PageVictims::choose(GrowingScores& scores, const Candidates& candidates, std::uint32_t count,
                         std::vector<SlotId>& victims) {
  if (page_ == 1) return scores.lowest(candidates, count, victims);
  choose(scores.of(static_cast<std::uint32_t>(candidates.positions.size())), candidates, count, victims);
}

// Sums of whole pages, each in the order of its tokens.
void PageVictims::add_up(std::span<const float> scores, const Candidates& candidates) {
  slots_by_age(candidates.positions, by_age_);
  decided_.resize(scores.size());
  for (std::uint32_t first = 0; first < by_age_.size();) {
    const std::uint32_t number = candidates.positions[by_age_[first].value].value / page_;
    Page page{0, first, 0};
    for (std::uint32_t i = first; i < by_age_.size(); ++i, ++page.count) {
      if (candidates.positions[by_age_[i].value].value / page_ != number) break;
      page.sum += scores[by_age_[i].value];
    }
    for (std::uint32_t i = first; i < first + page.count; ++i) decided_[by_age_[i].value] = page.sum;
    first += page.count;
    const std::uint64_t last = (std::uint64_t{number} + 1) * page_ - 1;
    if (last + candidates.recent <= candidates.newest.value) pages_.push_back(page);
  }
}

double PageVictims::gap(std::span<const float> scores, SlotId a, SlotId b) const {
  if (decided_.empty()) return relative_gap(scores[a.value], scores[b.value]);
  return relative_gap(decided_[a.value], decided_[b.value]);
}

double PageVictims::gap(const GrowingScores& scores, SlotId a, SlotId b) const {
  if (decided_.empty()) return relative_gap(scores.at(a), scores.at(b));
  return relative_gap(decided_[a.value], decided_[b.value]);
}

void read_page(const PolicySpec& spec, PolicyTraits& traits) { traits.evict_unit = spec.count("page", 1, 1); }

}  // namespace kvroof
