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

// Two passes: the least score, and the oldest of those that have it, sought only in the blocks whose own least it is.
// Neither depends on the number of lanes.
HWY_ATTR std::uint32_t lowest_on(std::span<const float> scores, const Candidates& candidates) {
  constexpr std::size_t kBlocks = 16;  // at most
  constexpr std::size_t kPair = 2 * kLanes;
  const F f;
  const auto* positions = &candidates.positions.data()->value;
  const std::size_t slots = scores.size();
  if (candidates.recent > candidates.newest.value) return 0;
  const auto recent = hn::Set(U(), candidates.newest.value - candidates.recent + 1);
  const std::size_t whole = slots / kPair * kPair;
  const std::size_t block = (slots / kPair + kBlocks - 1) / kBlocks * kPair;
  alignas(64) std::array<float, kBlocks * kLanes> least_of;  // [blocks][lanes]
  auto all = hn::Set(f, std::numeric_limits<float>::infinity());
  for (std::size_t begin = 0, b = 0; begin < whole; begin += block, ++b) {
    auto even = hn::Set(f, std::numeric_limits<float>::infinity());
    auto odd = even;
    for (std::size_t s = begin; s < std::min(begin + block, whole); s += kPair) {
      even = least_candidate(even, &scores[s], positions + s, recent);
      odd = least_candidate(odd, &scores[s + kLanes], positions + s + kLanes, recent);
    }
    even = hn::Min(even, odd);
    hn::Store(even, f, &least_of[b * kLanes]);
    all = hn::Min(all, even);
  }
  alignas(64) std::array<float, kLanes> lanes;
  hn::Store(all, f, lanes.data());
  float least = *std::min_element(lanes.begin(), lanes.end());
  for (std::size_t s = whole; s < slots; ++s) {
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
  for (std::size_t begin = 0, b = 0; begin < whole; begin += block, ++b) {
    if (hn::AllFalse(f, hn::Eq(hn::Load(f, &least_of[b * kLanes]), wanted))) continue;
    for (std::size_t s = begin; s < std::min(begin + block, whole); s += kLanes) {
      if (hn::AllFalse(f, hn::Eq(hn::LoadU(f, &scores[s]), wanted))) continue;
      for (std::size_t lane = 0; lane < kLanes; ++lane) offer(s + lane);
    }
  }
  for (std::size_t s = whole; s < slots; ++s) offer(s);
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
