// PageVictims: chooses what goes by score, single tokens or whole pages of neighbours.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/policy/growing_scores.hpp"

namespace kvroof {

// Page p has the tokens [p · page, (p + 1) · page) of a sequence. A page goes as a whole, so that its memory can be
// freed wherever caches are allocated in pages; it may go once its last token is older than the recent window. Pages
// with the lowest sums of scores go, of equals the oldest, until `count` tokens have gone: at most page − 1 more.
// Where the pages that are old enough do not suffice, the lowest of the other tokens outside the window go one by one.
class PageVictims {
 public:
  explicit PageVictims(std::uint32_t page) : page_(page) {}

  // Appends at least `count` of the candidates, or all of them. With pages of one token this is lowest().
  void choose(std::span<const float> scores, const Candidates& candidates, std::uint32_t count,
              std::vector<SlotId>& victims);
  void choose(GrowingScores& scores, const Candidates& candidates, std::uint32_t count, std::vector<SlotId>& victims);
  // How far apart the scores were by which the last choice told two slots apart (EvictionPolicy::score_gap).
  [[nodiscard]] double gap(std::span<const float> scores, SlotId a, SlotId b) const;
  [[nodiscard]] double gap(const GrowingScores& scores, SlotId a, SlotId b) const;

 private:
  struct Page {
    float sum;
    std::uint32_t first, count;  // in by_age_
  };
  void add_up(std::span<const float> scores, const Candidates& candidates);

  std::uint32_t page_;
  std::vector<SlotId> by_age_;
  std::vector<Page> pages_;     // that may go
  std::vector<float> left_;     // scores, those of what went already infinite
  std::vector<float> decided_;  // by slot: the sum of its page, where whole pages were compared
};

// page=: 1, or how many neighbours go together.
void read_page(const PolicySpec& spec, PolicyTraits& traits);

inline constexpr ParamInfo kPageParam = {
    "page", "1 | 16", "1", "tokens that go together: neighbours of a page, chosen by the sum of their scores"};

}  // namespace kvroof
