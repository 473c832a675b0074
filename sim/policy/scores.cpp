#include "sim/policy/scores.hpp"

#include <algorithm>
#include <array>
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
constexpr std::size_t kLanes = hn::MaxLanes(F());

HWY_ATTR void accumulate_on(GroupReduction reduction, const float* rows, std::uint32_t group, std::span<float> scores) {
  const F f;
  const std::size_t slots = scores.size();
  const float factor = reduction == GroupReduction::kMean ? 1.0F / static_cast<float>(group) : 1.0F;
  const bool largest = reduction == GroupReduction::kMax;
  std::size_t s = 0;
  for (; group == 1 && s + kLanes <= slots; s += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(f, scores.data() + s), hn::LoadU(f, rows + s)), f, scores.data() + s);
  }
  for (; s + kLanes <= slots; s += kLanes) {
    auto reduced = hn::LoadU(f, rows + s);
    for (std::uint32_t g = 1; g < group; ++g) {
      const auto row = hn::LoadU(f, rows + g * slots + s);
      reduced = largest ? hn::Max(reduced, row) : hn::Add(reduced, row);
    }
    reduced = hn::Mul(reduced, hn::Set(f, factor));
    hn::StoreU(hn::Add(hn::LoadU(f, scores.data() + s), reduced), f, scores.data() + s);
  }
  for (; s < slots; ++s) {
    float reduced = rows[s];
    for (std::uint32_t g = 1; g < group; ++g) {
      const float row = rows[g * slots + s];
      reduced = largest ? std::max(reduced, row) : reduced + row;
    }
    scores[s] += reduced * factor;
  }
}

// The lesser of `least` and the scores of one vector of slots, but for those of tokens from `recent` on.
HWY_INLINE hn::Vec<F> least_candidate(hn::Vec<F> least, const float* scores, const std::uint32_t* positions,
                                      hn::Vec<U> recent) {
  const auto is_candidate = hn::RebindMask(F(), hn::Lt(hn::LoadU(U(), positions), recent));
  const auto here = hn::LoadU(F(), scores);
  return hn::IfThenElse(is_candidate, hn::Min(least, here), least);
}

// Two passes: the least score, and the oldest of those that have it. Neither depends on the number of lanes.
HWY_ATTR std::uint32_t lowest_on(std::span<const float> scores, const Candidates& candidates) {
  const F f;
  const auto* positions = &candidates.positions.data()->value;
  const std::size_t slots = scores.size();
  if (candidates.recent > candidates.newest.value) return 0;
  const auto recent = hn::Set(U(), candidates.newest.value - candidates.recent + 1);
  auto even = hn::Set(f, std::numeric_limits<float>::infinity());
  auto odd = even;
  std::size_t s = 0;
  for (; s + 2 * kLanes <= slots; s += 2 * kLanes) {
    even = least_candidate(even, &scores[s], positions + s, recent);
    odd = least_candidate(odd, &scores[s + kLanes], positions + s + kLanes, recent);
  }
  alignas(64) std::array<float, kLanes> lanes;
  hn::Store(hn::Min(even, odd), f, lanes.data());
  float least = *std::min_element(lanes.begin(), lanes.end());
  const std::size_t whole = s;
  for (; s < slots; ++s) {
    if (candidates.has(s)) least = std::min(least, scores[s]);
  }
  std::uint32_t oldest = 0xffffffffU;
  std::uint32_t at = 0;
  const auto offer = [&](std::size_t slot) {
    if (scores[slot] == least && candidates.has(slot) && positions[slot] < oldest) {
      oldest = positions[slot];
      at = static_cast<std::uint32_t>(slot);
    }
  };
  const auto wanted = hn::Set(f, least);
  for (s = 0; s < whole; s += 2 * kLanes) {
    const auto here = hn::Eq(hn::LoadU(f, &scores[s]), wanted);
    const auto next = hn::Eq(hn::LoadU(f, &scores[s + kLanes]), wanted);
    if (hn::AllFalse(f, hn::Or(here, next))) continue;
    for (std::size_t lane = 0; lane < 2 * kLanes; ++lane) offer(s + lane);
  }
  for (; s < slots; ++s) offer(s);
  return at;
}

}  // namespace HWY_NAMESPACE
}  // namespace kvroof
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof {

HWY_EXPORT(accumulate_on);
HWY_EXPORT(lowest_on);

void accumulate(GroupReduction reduction, const float* rows, std::uint32_t group, std::span<float> scores) {
  HWY_DYNAMIC_DISPATCH(accumulate_on)(reduction, rows, group, scores);
}

SlotId lowest(std::span<const float> scores, const Candidates& candidates) {
  const SlotId slot(HWY_DYNAMIC_DISPATCH(lowest_on)(scores, candidates));
  check(candidates.has(slot.value), "a slot outside the recent window");
  return slot;
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
  return a == b ? 0 : std::fabs(a - b) / std::max(std::fabs(a), std::fabs(b));
}

}  // namespace kvroof
#endif
