#include "sim/replay/recorded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "sim/policy/policy.hpp"

namespace kvroof {
namespace {

// The most that scores must be wrong by for `theirs` to be given up in place of `ours`: the gap between the lowest of
// ours that stays and the highest of theirs that goes. Gaps grow with distance, so that one pass finds each end.
double widest_gap(std::vector<SlotId> ours, std::vector<SlotId> theirs, const RecordedEvictions::ScoreGap& gap) {
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  std::vector<SlotId> stays, goes;
  std::set_difference(ours.begin(), ours.end(), theirs.begin(), theirs.end(), std::back_inserter(stays));
  std::set_difference(theirs.begin(), theirs.end(), ours.begin(), ours.end(), std::back_inserter(goes));
  const auto further = [&](SlotId from) {
    return [&gap, from](SlotId a, SlotId b) { return gap(from, a) < gap(from, b); };
  };
  const SlotId highest = *std::max_element(goes.begin(), goes.end(), further(stays.front()));
  return gap(highest, *std::max_element(stays.begin(), stays.end(), further(highest)));
}

// The gap of a decision that scores made.
std::string in_words(double gap) {
  return std::isfinite(gap) ? fmt::format(" (scores {:.1g} apart)", gap) : std::string();
}

}  // namespace

RotaryRule recorded_rotation(const RotaryInfo& info) {
  RotaryRule rule;
  rule.style = info.style == "adjacent_pairs" ? RotaryStyle::kAdjacentPairs : RotaryStyle::kHalfSplit;
  rule.dims = info.dims;
  rule.theta = info.theta;
  rule.magnitude = info.magnitude;
  rule.inverse_frequencies = info.inverse_frequencies;
  if (rule.inverse_frequencies.empty()) rule.inverse_frequencies = plain_inverse_frequencies(info.theta, info.dims);
  rule.long_from = info.long_from;
  rule.long_inverse_frequencies = info.long_inverse_frequencies;
  return rule;
}

bool meets_recorded_rows(const TraceManifest& manifest, const PolicySpec& point) {
  if (!point.kv || !point.kv->quantised()) return true;
  return manifest.cache_type == point.kv && !point.kv->by_age();
}

std::optional<PolicySpec> recorded_policy(const TraceManifest& manifest) {
  try {
    std::vector<PolicySpec> policies = parse_policies(manifest.policy);
    return policies.size() == 1 ? std::optional(std::move(policies.front())) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool is_recorded_policy(const TraceManifest& manifest, const PolicySpec& point) {
  if (manifest.policy == point.text()) return true;
  const std::optional<PolicySpec> recorded = recorded_policy(manifest);
  return recorded && same_decisions(*recorded, point);
}

bool is_compared(const TraceManifest& manifest, const PolicySpec& point, std::uint64_t seed) {
  const PolicyTraits traits = policy_info(point.name).traits(point);
  const bool unlimited = point.budget.kind == Budget::Kind::kUnlimited && traits.capacities == Capacities::kBudget;
  if (traits.selects || unlimited) return false;
  return manifest.source == "engine" && manifest.seed == seed && is_recorded_policy(manifest, point);
}

Reproduction& Reproduction::operator+=(const Reproduction& other) {
  const bool graver = beyond_rounding == 0 && other.beyond_rounding > 0;
  if (first_difference.empty() || graver) first_difference = other.first_difference;
  decisions += other.decisions;
  differences += other.differences;
  beyond_rounding += other.beyond_rounding;
  return *this;
}

std::string Reproduction::problem() const {
  const auto says = [&](std::uint64_t count, std::string_view why) {
    return fmt::format("{} of {} recorded evictions differ from the replay's{}; the first: {}", count, decisions, why,
                       first_difference);
  };
  if (exact && differences > 0) return says(differences, ", whose arithmetic is the recording's");
  if (beyond_rounding > 0) return says(beyond_rounding, " by more than rounding");
  if (static_cast<double>(differences) > kMostDifferences * static_cast<double>(decisions)) {
    return says(differences, fmt::format(", and rounding explains at most {} %", 100 * kMostDifferences));
  }
  return {};
}

RecordedEvictions::RecordedEvictions(std::span<const EvictionRecord> evictions, std::uint32_t heads) : heads_(heads) {
  for (const EvictionRecord& eviction : evictions) {
    layer_ = eviction.layer;
    if (eviction.head >= heads_.size()) heads_.resize(eviction.head + 1);
    heads_[eviction.head].entries.push_back({eviction.step, TokenPos(eviction.position)});
  }
}

void RecordedEvictions::note_difference(StepId step, HeadId head, bool within_rounding, const std::string& what) {
  Reproduction one;
  one.differences = 1;
  one.beyond_rounding = within_rounding ? 0 : 1;
  one.first_difference = fmt::format("layer {}, step {}, head {}: {}", layer_, step.value, head.value, what);
  result_ += one;
}

void RecordedEvictions::pass_over(HeadId h, std::uint64_t step) {
  Head& head = heads_[h.value];
  while (head.next < head.entries.size() && head.entries[head.next].step < step) {
    const Entry first = head.entries[head.next];
    ++result_.decisions;
    note_difference(StepId(first.step), h, false,
                    fmt::format("the recording gives up token {}, the replay nothing more", first.position.value));
    while (head.next < head.entries.size() && head.entries[head.next].step == first.step) ++head.next;
  }
}

void RecordedEvictions::review(StepId step, HeadId head, std::span<const TokenPos> positions, const ScoreGap& gap,
                               std::vector<SlotId>& victims) {
  pass_over(head, step.value);
  ++result_.decisions;
  Head& recorded = heads_[head.value];
  ours_.clear();
  theirs_.clear();
  for (const SlotId victim : victims) ours_.push_back(positions[victim.value]);
  // A streamed prompt evicts many times within step 0: the next as many entries belong to this row.
  for (std::size_t i = recorded.next; i < recorded.entries.size() && theirs_.size() < ours_.size(); ++i) {
    if (recorded.entries[i].step != step.value) break;
    theirs_.push_back(recorded.entries[i].position);
  }
  recorded.next += theirs_.size();
  std::sort(ours_.begin(), ours_.end());
  std::sort(theirs_.begin(), theirs_.end());
  if (ours_ == theirs_) return;
  const auto first = std::mismatch(ours_.begin(), ours_.end(), theirs_.begin(), theirs_.end());
  std::vector<SlotId> slots;
  for (std::uint32_t slot = 0; slot < positions.size(); ++slot) {
    if (std::binary_search(theirs_.begin(), theirs_.end(), positions[slot])) slots.emplace_back(slot);
  }
  const bool can_follow = slots.size() == ours_.size();
  const double widest = can_follow ? widest_gap(victims, slots, gap) : std::numeric_limits<double>::infinity();
  note_difference(step, head, widest <= kRoundingGap,
                  first.second == theirs_.end()
                      ? fmt::format("the replay gives up token {}, the recording fewer", first.first->value)
                      : fmt::format("the replay gives up token {}, the recording token {}{}", first.first->value,
                                    first.second->value, in_words(widest)));
  if (can_follow) victims = std::move(slots);
}

Reproduction RecordedEvictions::finish() {
  for (std::uint32_t h = 0; h < heads_.size(); ++h) pass_over(HeadId(h), std::uint64_t{UINT32_MAX} + 1);
  return result_;
}

}  // namespace kvroof
