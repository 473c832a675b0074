#include "sim/policy/growing_scores.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace kvroof {
namespace {

constexpr std::size_t kFewSlots = 64;  // among which the lowest is sought as fast
constexpr std::size_t kMostWatched = 128;
constexpr std::uint32_t kRest = 16;
// Of the minima of so many parts of the slots, the one that bounds those that are watched: below it lie some ten.
constexpr std::size_t kParts = 8;
constexpr std::size_t kBound = 5;

// `a` where `first`, else `b`; a ternary would become a branch.
std::uint64_t either(bool first, std::uint64_t a, std::uint64_t b) {
  return b ^ ((a ^ b) & (std::uint64_t{0} - std::uint64_t{first}));
}

using Minima = std::array<float, kParts>;

Minima minima_of_parts(const LeastOfBlocks& least) {
  Minima minima;
  minima.fill(std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < least.count; ++i) minima[i % kParts] = std::min(minima[i % kParts], least.values[i]);
  return minima;
}

// The n-th least, from 0 on, without branches.
float nth_least(const Minima& minima, std::size_t n) {
  float nth = 0;
  for (std::size_t i = 0; i < kParts; ++i) {
    std::size_t before = 0;
    for (std::size_t j = 0; j < kParts; ++j) before += (minima[j] < minima[i]) | ((minima[j] == minima[i]) & (j < i));
    nth = before == n ? minima[i] : nth;
  }
  return nth;
}

}  // namespace

void WatchedSlots::watch(std::span<const float> scores, const Candidates& candidates, const LeastOfBlocks& least) {
  watches_ = false;
  if (scores.size() < kFewSlots) return;
  if (rest_ > 0) {
    --rest_;
    return;
  }
  limit_ = nth_least(minima_of_parts(least), kBound);
  next_ = candidates.first_recent();
  found_.clear();
  const bool few = slots_below(scores, candidates.positions, TokenPos(next_), limit_, kMostWatched, found_);
  if (!few || found_.empty()) {
    rest_ = kRest;
    return;
  }
  entries_.clear();
  for (const SlotId slot : found_) entries_.push_back({candidates.positions[slot.value], slot});
  slots_ = scores.size();
  follow(candidates);
  watches_ = true;
}

// Where the tokens from next_ on lie.
void WatchedSlots::follow(const Candidates& candidates) {
  if (follows_ && newer_from_ <= next_) {
    newer_.erase(newer_.begin(), newer_.begin() + (next_ - newer_from_));
  } else {
    newer_.assign(candidates.newest.value + 1 - next_, kNone);
    for (std::uint32_t s = 0; s < candidates.positions.size(); ++s) {
      const std::uint32_t position = candidates.positions[s].value;
      if (position >= next_) newer_[position - next_] = SlotId(s);
    }
  }
  newer_from_ = next_;
  follows_ = true;
}

// Tokens that have become candidates, as far as their scores are below the limit.
void WatchedSlots::take_candidates(std::span<const float> scores, const Candidates& candidates) {
  for (const std::uint32_t first_recent = candidates.first_recent(); next_ < first_recent; ++next_) {
    const SlotId slot = newer_[next_ - newer_from_];
    const bool is_held = slot.value < scores.size() && candidates.positions[slot.value].value == next_;
    if (!is_held || scores[slot.value] >= limit_) continue;
    entries_.push_back({TokenPos(next_), slot});
    slots_ = std::max<std::size_t>(slots_, slot.value + 1);
  }
}

// Without branches, which no processor would foresee: the bits of numbers ≥ 0 are ordered as they are, and below them
// those of the position make the oldest of equals the least.
std::optional<SlotId> WatchedSlots::lowest(std::span<const float> scores, const Candidates& candidates) {
  if (!watches_ || scores.size() < slots_ || candidates.first_recent() < next_) return std::nullopt;
  if (candidates.newest.value >= newer_from_ + newer_.size()) return std::nullopt;
  take_candidates(scores, candidates);
  const std::uint64_t none = std::uint64_t{std::bit_cast<std::uint32_t>(limit_)} << 32;
  std::uint64_t least = none;
  std::uint64_t lowest = 0;
  std::uint64_t gone = entries_.size();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    const std::uint64_t key =
        std::uint64_t{std::bit_cast<std::uint32_t>(scores[e.slot.value])} << 32 | e.position.value;
    const std::uint64_t rank = either(candidates.positions[e.slot.value] == e.position, key, none);
    lowest = either(rank < least, i, lowest);
    least = either(rank < least, rank, least);
    gone = either(rank < none, gone, i);
  }
  if (least == none) return std::nullopt;
  const SlotId slot = entries_[lowest].slot;
  // One at a time: rows seldom take more.
  if (gone < entries_.size()) {
    entries_[gone] = entries_.back();
    entries_.pop_back();
  }
  return slot;
}

void GrowingScores::add(const RowsToAdd& rows, std::uint32_t slots) {
  accumulate(rows, column_.column(0, slots));
  falls_ = rows.keep != 1;
}

void GrowingScores::lowest(const Candidates& candidates, std::uint32_t count, std::vector<SlotId>& victims) {
  const std::span<const float> scores = of(static_cast<std::uint32_t>(candidates.positions.size()));
  if (falls_ || count != 1) return kvroof::lowest(scores, candidates, count, victims);
  if (const auto watched = watched_.lowest(scores, candidates)) {
    victims.push_back(*watched);
    return;
  }
  const LeastOfBlocks least = least_of_blocks(scores, candidates);
  victims.push_back(kvroof::lowest(scores, candidates, least));
  watched_.watch(scores, candidates, least);
}

}  // namespace kvroof
