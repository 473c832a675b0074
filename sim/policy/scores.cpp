#include "sim/policy/scores.hpp"

#include <algorithm>
#include <array>
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

// (score, position) is a total order, so that the lane in which a slot is seen does not matter.
HWY_ATTR std::uint32_t lowest_on(std::span<const float> scores, const Candidates& candidates) {
  const F f;
  const U u;
  const auto* positions = &candidates.positions.data()->value;
  const auto infinity = hn::Set(f, std::numeric_limits<float>::infinity());
  const auto newest = hn::Set(u, candidates.newest.value);
  const auto recent = hn::Set(u, candidates.recent);
  auto best_score = infinity;
  auto best_position = hn::Set(u, 0xffffffffU);
  auto best_slot = hn::Zero(u);
  auto slot = hn::Iota(u, 0);
  std::size_t s = 0;
  for (; s + kLanes <= scores.size(); s += kLanes) {
    const auto position = hn::LoadU(u, positions + s);
    const auto allowed = hn::Not(hn::RebindMask(f, hn::Lt(newest, hn::Add(position, recent))));
    const auto score = hn::IfThenElse(allowed, hn::LoadU(f, scores.data() + s), infinity);
    const auto older = hn::RebindMask(f, hn::Lt(position, best_position));
    const auto better = hn::Or(hn::Lt(score, best_score), hn::And(hn::Eq(score, best_score), older));
    best_score = hn::IfThenElse(better, score, best_score);
    best_position = hn::IfThenElse(hn::RebindMask(u, better), position, best_position);
    best_slot = hn::IfThenElse(hn::RebindMask(u, better), slot, best_slot);
    slot = hn::Add(slot, hn::Set(u, static_cast<std::uint32_t>(kLanes)));
  }
  alignas(64) std::array<float, kLanes> lane_score;
  alignas(64) std::array<std::uint32_t, kLanes> lane_slot;
  hn::Store(best_score, f, lane_score.data());
  hn::Store(best_slot, u, lane_slot.data());
  float least = std::numeric_limits<float>::infinity();
  std::uint32_t at = 0;
  const auto offer = [&](float score, std::uint32_t candidate) {
    if (score < least || (score == least && candidates.positions[candidate] < candidates.positions[at])) {
      least = score;
      at = candidate;
    }
  };
  for (std::size_t lane = 0; lane < kLanes; ++lane) offer(lane_score[lane], lane_slot[lane]);
  for (; s < scores.size(); ++s) {
    if (candidates.has(s)) offer(scores[s], static_cast<std::uint32_t>(s));
  }
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

}  // namespace kvroof
#endif
