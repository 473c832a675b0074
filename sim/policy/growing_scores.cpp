#include "sim/policy/growing_scores.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace kvroof {
namespace {

constexpr std::size_t kFewSlots = 64;    // among which the lowest is sought as fast
// Below this one of the minima of a few parts of the slots lie some ten candidates.
constexpr std::size_t kMostMinima = 32;
constexpr std::size_t kWanted = 8;
constexpr std::size_t kMostWatched = 128;
constexpr std::uint32_t kRest = 16;

// The minima of at most kMostMinima parts.
std::size_t fold(const LeastOfBlocks& least, std::array<float, kMostMinima>& minima) {
  const std::size_t count = std::min(least.count, kMostMinima);
  std::copy_n(least.values.begin(), count, minima.begin());
  for (std::size_t i = count; i < least.count; ++i) minima[i % count] = std::min(minima[i % count], least.values[i]);
  return count;
}

}  // namespace

void WatchedSlots::watch(std::span<const float> scores, const Candidates& candidates, const LeastOfBlocks& least) {
  covered_ = 0;
  if (scores.size() < kFewSlots) return;
  if (rest_ > 0) {
    --rest_;
    return;
  }
  std::array<float, kMostMinima> minima;
  const std::size_t count = fold(least, minima);
  const auto wanted = minima.begin() + static_cast<std::ptrdiff_t>(std::min(kWanted, count) - 1);
  std::nth_element(minima.begin(), wanted, minima.begin() + static_cast<std::ptrdiff_t>(count));
  limit_ = *wanted;
  ahead_from_ = next_ = candidates.first_recent();
  const std::uint32_t covered = ahead_from_ + std::min(kAhead, candidates.recent);
  found_.clear();
  const bool few = slots_below(scores, candidates.positions, TokenPos(covered), limit_, kMostWatched, found_);
  if (!few || found_.empty()) {
    rest_ = kRest;
    return;
  }
  entries_.clear();
  ahead_.fill(kNone);
  for (const SlotId slot : found_) {
    const TokenPos position = candidates.positions[slot.value];
    if (position.value < ahead_from_) {
      entries_.push_back({position, slot});
    } else {
      ahead_[position.value - ahead_from_] = slot;
    }
  }
  covered_ = covered;
  slots_ = scores.size();
}

// Without branches, which no processor would foresee: the bits of numbers ≥ 0 are ordered as they are, and below them
// those of the position make the oldest of equals the least.
std::optional<SlotId> WatchedSlots::lowest(std::span<const float> scores, const Candidates& candidates) {
  const std::uint32_t first_recent = candidates.first_recent();
  if (first_recent > covered_ || scores.size() < slots_) return std::nullopt;
  for (; next_ < first_recent; ++next_) {
    const SlotId slot = ahead_[next_ - ahead_from_];
    if (slot != kNone) entries_.push_back({TokenPos(next_), slot});
  }
  const std::uint64_t none = std::uint64_t{std::bit_cast<std::uint32_t>(limit_)} << 32;
  std::uint64_t least = none;
  std::size_t lowest = 0;
  std::size_t gone = entries_.size();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    const std::uint64_t key =
        std::uint64_t{std::bit_cast<std::uint32_t>(scores[e.slot.value])} << 32 | e.position.value;
    const bool is_held = candidates.positions[e.slot.value] == e.position;
    const bool is_lower = is_held && key < least;
    least = is_lower ? key : least;
    lowest = is_lower ? i : lowest;
    gone = is_held ? gone : i;
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
