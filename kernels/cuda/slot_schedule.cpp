#include "kernels/cuda/slot_schedule.hpp"

#include <algorithm>

#include "kernels/cuda/kernels.hpp"
#include "sim/core/error.hpp"

namespace kvroof::cuda {

using Kind = ScoreRecipe::Kind;

std::uint32_t DevicePolicy::state_columns(std::uint32_t group) const {
  switch (recipe.kind) {
    case Kind::kPositions: return 0;
    case Kind::kNoisySum: return 1 + (recipe.noise == NoiseMode::kPerToken ? group : 0);
    case Kind::kCounts: return 1 + (recipe.history + 31) / 32;
    case Kind::kAttentionSum:
    case Kind::kLastRow: return 1;
  }
  check(false, "every kind of score has its columns");
  return 0;
}

bool DevicePolicy::scores_prompt_at_once() const {
  switch (recipe.kind) {
    case Kind::kPositions:
    case Kind::kLastRow: return false;
    case Kind::kCounts: return recipe.history <= kMostPromptHistory;
    case Kind::kAttentionSum:
    case Kind::kNoisySum: return true;
  }
  check(false, "every kind of score has its way through a prompt");
  return false;
}

std::optional<DevicePolicy> device_policy(const PolicySpec& spec, const ModelShape& shape) {
  const PolicyInfo& info = policy_info(spec.name);
  if (info.recipe == nullptr) return std::nullopt;
  if (info.traits(spec).evict_unit > 1) return std::nullopt;  // whole pages go: only the policy object knows which
  const DevicePolicy policy{info.recipe(spec), info.traits(spec), info.takes_budget ? spec.budget : Budget{}};
  if (!policy.recipe.complete) return std::nullopt;
  const bool each_step = policy.traits.interval == 1 && policy.traits.capacities == Capacities::kBudget;
  if (policy.traits.streams_prompt || !each_step) return std::nullopt;
  bool windows = false;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) windows = windows || shape.window(layer) > 0;
  const bool grows = policy.budget.kind == Budget::Kind::kFractionOfCurrent;
  if (!policy.keeps_scores()) {
    // Sinks that a window hides, or slots added between those of a ring, are in no simple order.
    return grows || (windows && policy.recipe.sinks > 0) ? std::nullopt : std::optional(policy);
  }
  // Where a window makes room, the last row's scores are not read to choose by, which a plan does not know.
  if (windows && policy.recipe.kind == Kind::kLastRow) return std::nullopt;
  // What a window hides is in some heads and not in others, so that they would hold more and fewer.
  if (windows && (grows || !policy.observes() || policy.recipe.kind == Kind::kCounts)) return std::nullopt;
  return shape.heads / shape.kv_heads > kMostScoreGroup ? std::nullopt : std::optional(policy);
}

std::vector<SlotMove> filling_moves(std::span<const SlotId> victims, std::uint32_t length) {
  const auto left = static_cast<std::uint32_t>(length - victims.size());
  auto hole = victims.begin();
  auto leaving = std::lower_bound(victims.begin(), victims.end(), SlotId(left));
  std::vector<SlotMove> moves;
  for (std::uint32_t from = left; from < length; ++from) {
    if (leaving != victims.end() && leaving->value == from) {
      ++leaving;
    } else {
      moves.push_back({SlotId(from), *hole++});
    }
  }
  return moves;
}

SlotSchedule::SlotSchedule(const DevicePolicy& policy, const PolicyContext& context, std::uint32_t held)
    : policy_(policy), context_(context), slots_(held), held_(held) {
  ring_first_ = std::min(policy_.recipe.sinks, budget(context_.prompt) - 1);
  oldest_ = ring_first_;
  // The next query does not see the oldest of a whole window.
  hole_ = hole_is_oldest_ = context_.window > 0 && held >= context_.window;
}

StepRow SlotSchedule::admit(std::uint32_t position) {
  const ScoreRecipe& recipe = policy_.recipe;
  StepRow row;
  if (!hole_) {
    row.slot = slots_;
  } else if (hole_is_oldest_ || !policy_.keeps_scores()) {
    row.slot = oldest_;
  }
  hole_is_oldest_ = false;
  if (hole_) {
    if (++oldest_ == slots_) oldest_ = ring_first_;
  } else {
    ++slots_;
  }
  const std::uint32_t limit = budget(position);
  over_ = policy_.traits.schedule == Schedule::kEveryStep && slots_ > limit;
  const bool hides = context_.window > 0 && slots_ >= context_.window;
  drops_ = over_ && recipe.kind == Kind::kCounts ? std::max(recipe.drop.of(limit), slots_ - limit) : 0;
  if (drops_ == 1) drops_ = 0;  // one victim's slot is the next token's: no row moves
  hole_ = (over_ || hides) && drops_ == 0;
  held_ = slots_ - (over_ ? 1 : 0);
  const bool hidden_is_oldest = hides && slots_ == context_.window;
  evicted_ = over_ && !hidden_is_oldest ? position + 1 - (slots_ - ring_first_) : kNoToken;
  row.length = slots_;
  row.recent = recipe.recent.of(limit);
  row.evicts = over_ && drops_ == 0 ? 1 : 0;
  row.sequence = context_.sequence;
  row.temperature = recipe.temperature.at(StepId(position - context_.prompt + 1), context_.requested_new_tokens);
  row.threshold = 1.0F / static_cast<float>(recipe.threshold_is_count ? slots_ : position + 1);
  return row;
}

void SlotSchedule::dropped(std::uint32_t count) {
  slots_ -= count;
  held_ = slots_;
}

}  // namespace kvroof::cuda
