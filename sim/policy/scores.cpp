#include "sim/policy/scores.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "sim/core/error.hpp"

#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sim/policy/scores.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvroof {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::CappedTag<float, 16>;
using U = hn::RebindToUnsigned<F>;
using V = hn::Vec<F>;
constexpr std::size_t kLanes = hn::MaxLanes(F());
static_assert(kLanes <= LeastOfBlocks::kMostLanes);

// Scores as they become.
template <bool kSingle, bool kKeepsAll>  // whether the group is one row, and add.keep is 1
struct Added {
  RowsToAdd add;  // a copy, so that no store to the scores may change it
  float* scores;
  float factor;  // of the only row, or of the reduced one

  HWY_INLINE V grown(std::size_t s) const {
    const F f;
    V kept = hn::LoadU(f, scores + s);
    if constexpr (!kKeepsAll) kept = hn::Mul(kept, hn::Set(f, add.keep));
    V reduced = hn::Mul(hn::LoadU(f, add.rows.values + s), hn::Set(f, kSingle ? factor : add.rows.factor(0)));
    if constexpr (!kSingle) {
      for (std::uint32_t g = 1; g < add.group; ++g) {
        const V values = hn::LoadU(f, add.rows.values + g * add.rows.stride + s);
        const V row = hn::Mul(values, hn::Set(f, add.rows.factor(g)));
        reduced = add.reduction == GroupReduction::kMax ? hn::Max(reduced, row) : hn::Add(reduced, row);
      }
      reduced = hn::Mul(reduced, hn::Set(f, factor));
    }
    return hn::Add(kept, reduced);
  }
  HWY_INLINE void vector(std::size_t s) const { hn::StoreU(grown(s), F(), scores + s); }
  // Of the vector from s on, the first `done` were added to before.
  HWY_INLINE void last_vector(std::size_t s, std::size_t done) const {
    hn::StoreU(hn::IfThenElse(hn::FirstN(F(), done), hn::LoadU(F(), scores + s), grown(s)), F(), scores + s);
  }
  void one(std::size_t s) const {
    float reduced = add.rows.values[s] * (kSingle ? factor : add.rows.factor(0));
    for (std::uint32_t g = 1; g < add.group; ++g) {
      const float row = add.rows.values[g * add.rows.stride + s] * add.rows.factor(g);
      reduced = add.reduction == GroupReduction::kMax ? std::max(reduced, row) : reduced + row;
    }
    if (!kSingle) reduced *= factor;
    scores[s] = scores[s] * add.keep + reduced;
  }
};

// The lesser of `least` and the scores of one vector of slots, but for those of tokens from `recent` on.
HWY_INLINE V least_candidate(V least, const float* scores, const std::uint32_t* positions, hn::Vec<U> recent) {
  const auto is_candidate = hn::RebindMask(F(), hn::Lt(hn::LoadU(U(), positions), recent));
  return hn::IfThenElse(is_candidate, hn::Min(least, hn::LoadU(F(), scores)), least);
}

// The last vector, where the slots do not fill it, begins before the one that they are of.
HWY_ATTR void least_on(const float* scores, const Candidates& candidates, LeastOfBlocks& least) {
  const std::size_t slots = candidates.positions.size();
  const auto* positions = &candidates.positions.data()->value;
  const std::uint32_t bound = candidates.first_recent();
  const auto recent = hn::Set(U(), bound);
  if (slots < kLanes) {
    least.count = 1;
    least.values[0] = std::numeric_limits<float>::infinity();
    for (std::size_t s = 0; s < slots; ++s) {
      if (positions[s] < bound) least.values[0] = std::min(least.values[0], scores[s]);
    }
    return;
  }
  const std::size_t block = LeastOfBlocks::block(slots, kLanes);
  least.count = 0;
  for (std::size_t begin = 0; begin < slots; begin += block) {
    const std::size_t end = std::min(begin + block, slots);
    V even = hn::Set(F(), std::numeric_limits<float>::infinity());
    V odd = even;
    std::size_t s = begin;
    for (; s + 2 * kLanes <= end; s += 2 * kLanes) {
      even = least_candidate(even, scores + s, positions + s, recent);
      odd = least_candidate(odd, scores + s + kLanes, positions + s + kLanes, recent);
    }
    for (; s < end; s += kLanes) {
      const std::size_t from = std::min(s, slots - kLanes);
      even = least_candidate(even, scores + from, positions + from, recent);
    }
    hn::Store(hn::Min(even, odd), F(), &least.values[least.count]);
    least.count += kLanes;
  }
}

// Calls offer(slot) for each slot of [from, from + kLanes) whose bit is set.
template <class Offer>
HWY_INLINE void for_each(hn::Mask<F> mask, std::size_t from, const Offer& offer) {
  std::array<std::uint8_t, 8> bytes{};
  hn::StoreMaskBits(F(), mask, bytes.data());
  for (auto bits = std::bit_cast<std::uint64_t>(bytes); bits != 0; bits &= bits - 1) {
    offer(from + static_cast<std::size_t>(std::countr_zero(bits)));
  }
}

// The oldest of the candidates that have the least score, sought in the blocks that have it.
HWY_ATTR std::uint32_t oldest_on(const float* scores, const Candidates& candidates, const LeastOfBlocks& blocks) {
  const F f;
  const std::size_t slots = candidates.positions.size();
  const auto* positions = &candidates.positions.data()->value;
  std::uint32_t oldest = candidates.first_recent();
  std::uint32_t at = 0;
  const auto offer = [&](std::size_t slot) {
    if (positions[slot] >= oldest) return;
    oldest = positions[slot];
    at = static_cast<std::uint32_t>(slot);
  };
  if (slots < kLanes) {
    for (std::size_t s = 0; s < slots; ++s) {
      if (scores[s] == blocks.values[0]) offer(s);
    }
    return at;
  }
  const std::size_t block = LeastOfBlocks::block(slots, kLanes);
  V all = hn::Load(f, blocks.values.data());
  for (std::size_t b = 1; b * block < slots; ++b) all = hn::Min(all, hn::Load(f, &blocks.values[b * kLanes]));
  const V wanted = hn::MinOfLanes(f, all);
  for (std::size_t b = 0; b * block < slots; ++b) {
    if (hn::AllFalse(f, hn::Eq(hn::Load(f, &blocks.values[b * kLanes]), wanted))) continue;
    for (std::size_t s = b * block; s < std::min((b + 1) * block, slots); s += kLanes) {
      const std::size_t from = std::min(s, slots - kLanes);
      const auto least = hn::Eq(hn::LoadU(f, scores + from), wanted);
      if (hn::AllFalse(f, least)) continue;
      for_each(least, from, offer);
    }
  }
  return at;
}

HWY_ATTR bool below_on(const float* scores, std::span<const TokenPos> positions, TokenPos end, float limit,
                       std::size_t most, std::vector<SlotId>& slots) {
  const auto offer = [&](std::size_t s) { slots.emplace_back(static_cast<std::uint32_t>(s)); };
  const std::size_t count = positions.size();
  const V bound = hn::Set(F(), limit);
  const auto token_bound = hn::Set(U(), end.value);
  std::size_t s = 0;
  for (; s + kLanes <= count && slots.size() <= most; s += kLanes) {
    const auto is_before = hn::RebindMask(F(), hn::Lt(hn::LoadU(U(), &positions[s].value), token_bound));
    const auto is_below = hn::And(hn::Lt(hn::LoadU(F(), scores + s), bound), is_before);
    if (!hn::AllFalse(F(), is_below)) for_each(is_below, s, offer);
  }
  for (; s < count && slots.size() <= most; ++s) {
    if (positions[s] < end && scores[s] < limit) offer(s);
  }
  return slots.size() <= most;
}

HWY_ATTR std::size_t at_least_on(std::span<const float> values, float bound) {
  std::size_t count = 0, i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    count += hn::CountTrue(F(), hn::Ge(hn::LoadU(F(), values.data() + i), hn::Set(F(), bound)));
  }
  for (; i < values.size(); ++i) count += values[i] >= bound ? 1 : 0;
  return count;
}

HWY_ATTR std::size_t slots_at_least_on(std::span<const float> values, float bound, SlotId* out) {
  std::size_t count = 0, i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    const auto is_in = hn::Ge(hn::LoadU(F(), values.data() + i), hn::Set(F(), bound));
    const auto slots = hn::Iota(U(), static_cast<std::uint32_t>(i));
    // Not CompressStore: storing a part of a vector is slow on some processors.
    hn::StoreU(hn::Compress(slots, hn::RebindMask(U(), is_in)), U(), &out[count].value);
    count += hn::CountTrue(F(), is_in);
  }
  for (; i < values.size(); ++i) {
    out[count] = SlotId(static_cast<std::uint32_t>(i));
    count += values[i] >= bound ? 1 : 0;
  }
  return count;
}

template <class Scores>
HWY_INLINE void add(const Scores& scores, std::size_t slots) {
  std::size_t s = 0;
  for (; s + kLanes <= slots; s += kLanes) scores.vector(s);
  if (s < slots && slots >= kLanes) return scores.last_vector(slots - kLanes, s - (slots - kLanes));
  for (; s < slots; ++s) scores.one(s);
}

HWY_ATTR void add_on(const RowsToAdd& rows, std::span<float> scores) {
  if (rows.group == 1 && rows.keep == 1) {
    add(Added<true, true>{rows, scores.data(), rows.rows.factor(0)}, scores.size());
  } else if (rows.group == 1) {
    add(Added<true, false>{rows, scores.data(), rows.rows.factor(0)}, scores.size());
  } else {
    const bool mean = rows.reduction == GroupReduction::kMean;
    add(Added<false, false>{rows, scores.data(), mean ? 1.0F / static_cast<float>(rows.group) : 1.0F}, scores.size());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kvroof
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof {

HWY_EXPORT(least_on);
HWY_EXPORT(add_on);
HWY_EXPORT(oldest_on);
HWY_EXPORT(below_on);
HWY_EXPORT(at_least_on);
HWY_EXPORT(slots_at_least_on);

void accumulate(const RowsToAdd& rows, std::span<float> scores) {
  HWY_DYNAMIC_DISPATCH(add_on)(rows, scores);
}

void accumulate(GroupReduction reduction, const float* rows, std::uint32_t group, std::span<float> scores) {
  accumulate({{rows, scores.size()}, group, reduction}, scores);
}

LeastOfBlocks least_of_blocks(std::span<const float> scores, const Candidates& candidates) {
  LeastOfBlocks least;
  HWY_DYNAMIC_DISPATCH(least_on)(scores.data(), candidates, least);
  return least;
}

SlotId lowest(std::span<const float> scores, const Candidates& candidates, const LeastOfBlocks& least) {
  const SlotId slot(HWY_DYNAMIC_DISPATCH(oldest_on)(scores.data(), candidates, least));
  check(candidates.has(slot.value), "a slot outside the recent window");
  return slot;
}

SlotId lowest(std::span<const float> scores, const Candidates& candidates) {
  return lowest(scores, candidates, least_of_blocks(scores, candidates));
}

bool slots_below(std::span<const float> scores, std::span<const TokenPos> positions, TokenPos end, float limit,
                 std::size_t most, std::vector<SlotId>& slots) {
  return HWY_DYNAMIC_DISPATCH(below_on)(scores.data(), positions, end, limit, most, slots);
}

std::size_t count_at_least(std::span<const float> values, float bound) {
  return HWY_DYNAMIC_DISPATCH(at_least_on)(values, bound);
}

void slots_at_least(std::span<const float> values, float bound, std::vector<SlotId>& slots) {
  const std::size_t before = slots.size();
  const std::size_t most = before + values.size() + LeastOfBlocks::kMostLanes;  // whole vectors are stored
  if (slots.capacity() < most) slots.reserve(2 * most);
  slots.resize(most);
  slots.resize(before + HWY_DYNAMIC_DISPATCH(slots_at_least_on)(values, bound, slots.data() + before));
}

namespace {

// Whole numbers in the order of the floats that they are of.
std::int32_t ordered(std::int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

}  // namespace

float bound_of_largest(std::span<const float> values, std::size_t n) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::int64_t low = ordered(std::bit_cast<std::int32_t>(-kInfinity));
  std::int64_t high = ordered(std::bit_cast<std::int32_t>(kInfinity));
  const auto value_of = [](std::int64_t key) { return std::bit_cast<float>(ordered(static_cast<std::int32_t>(key))); };
  while (low < high) {  // at least n are not below `low`, fewer than n are above `high`
    const std::int64_t middle = high - (high - low) / 2;
    const std::size_t count = count_at_least(values, value_of(middle));
    if (count == n) return value_of(middle);
    (count > n ? low : high) = count > n ? middle : middle - 1;
  }
  return value_of(low);
}

void lowest(std::span<const float> scores, const Candidates& candidates, std::uint32_t count,
            std::vector<SlotId>& victims) {
  if (count == 1) {
    victims.push_back(lowest(scores, candidates));
    return;
  }
  const std::size_t before = victims.size();
  for (std::uint32_t s = 0; s < scores.size(); ++s) {
    if (candidates.has(s)) victims.emplace_back(s);
  }
  if (victims.size() - before <= count) return;
  const auto order = [&](SlotId a, SlotId b) {
    const float x = scores[a.value];
    const float y = scores[b.value];
    return x != y ? x < y : candidates.positions[a.value] < candidates.positions[b.value];
  };
  const auto begin = victims.begin() + static_cast<std::ptrdiff_t>(before);
  std::nth_element(begin, begin + count, victims.end(), order);
  victims.erase(begin + count, victims.end());
}

double relative_gap(double a, double b) {
  if (a == b) return 0;
  const double largest = std::max(std::fabs(a), std::fabs(b));
  return std::isinf(largest) ? largest : std::fabs(a - b) / largest;
}

}  // namespace kvroof
#endif
