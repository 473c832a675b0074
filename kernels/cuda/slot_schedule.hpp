// SlotSchedule: what the host knows of one (sequence, layer) whose victims the device chooses, without asking it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/score_arguments.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof::cuda {

// What a run's policy asks of the device.
struct DevicePolicy {
  ScoreRecipe recipe;
  PolicyTraits traits;
  Budget budget;

  [[nodiscard]] bool keeps_scores() const { return recipe.kind != ScoreRecipe::Kind::kPositions; }
  // Whether decoded rows change scores.
  [[nodiscard]] bool observes() const { return keeps_scores() && traits.schedule == Schedule::kEveryStep; }
  // Whether a score outlives its row, and goes where its token goes.
  [[nodiscard]] bool keeps_state() const { return keeps_scores() && recipe.kind != ScoreRecipe::Kind::kLastRow; }
  // Whether a prompt's scores may be made of all its rows at once.
  [[nodiscard]] bool scores_prompt_at_once() const;
  // Columns of CacheSlots::state for a storage head that `group` query heads share.
  [[nodiscard]] std::uint32_t state_columns(std::uint32_t group) const;
};

// Null: the policy's object must choose, on the host. Everything else keeps as many tokens in each head of a layer.
std::optional<DevicePolicy> device_policy(const PolicySpec& spec, const ModelShape& shape);

// The survivors in the last of `length` slots take those of the victims (ascending) before them.
std::vector<SlotMove> filling_moves(std::span<const SlotId> victims, std::uint32_t length);

// All heads hold equally many tokens, dense in their slots but for one hole: the last victim's slot, which the next
// token takes. Where no scores decide, the slots after the sinks are a ring.
class SlotSchedule {
 public:
  SlotSchedule() = default;
  // After a prompt that left `held` tokens, in the order of their positions.
  SlotSchedule(const DevicePolicy& policy, const PolicyContext& context, std::uint32_t held);

  // The row of the next token. Positions come one by one.
  StepRow admit(std::uint32_t position);
  // Of the row that was admitted last:
  [[nodiscard]] std::uint32_t length() const { return slots_; }
  [[nodiscard]] std::uint32_t held() const { return held_; }  // tokens of a head after it
  // What the ring gave up, or kNoToken. Where scores decide, the device tells.
  [[nodiscard]] std::uint32_t evicted() const { return evicted_; }
  [[nodiscard]] bool over_budget() const { return over_; }
  // Tokens that every head has to give up at once (kCounts), which the host closes up. 0: none,
  // or the device chooses the one that goes.
  [[nodiscard]] std::uint32_t drops() const { return drops_; }
  void dropped(std::uint32_t count);
  [[nodiscard]] std::uint32_t budget(std::uint32_t position) const {
    return policy_.budget.tokens(context_.prompt, position + 1);
  }

 private:
  DevicePolicy policy_;
  PolicyContext context_;
  std::uint32_t slots_ = 0;  // that hold a token, or held the last victim
  std::uint32_t held_ = 0;
  std::uint32_t ring_first_ = 0, oldest_ = 0;  // slots
  std::uint32_t evicted_ = kNoToken;
  std::uint32_t drops_ = 0;
  bool hole_ = false;
  bool hole_is_oldest_ = false;  // of the prompt's tokens, whatever the scores
  bool over_ = false;
};

}  // namespace kvroof::cuda
