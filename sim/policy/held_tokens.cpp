#include "sim/policy/held_tokens.hpp"

#include <algorithm>

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// A head that gives up `drop` tokens whenever it holds more than `budget`, but never the newest `recent`.
struct SawTooth {
  u64 budget = 1, drop = 1, recent = 0;

  [[nodiscard]] u64 after_prompt(u64 prompt) const {
    if (prompt <= budget) return prompt;
    return prompt - std::min(std::max(drop, prompt - budget), prompt - std::min(recent, prompt - 1));
  }
  // So many steps after it held `held`.
  [[nodiscard]] u64 later(u64 held, u64 steps) const {
    if (held + steps <= budget) return held + steps;
    const u64 tooth = std::min(drop, budget + 1 - std::min(recent, budget));
    return budget + 1 - tooth + (steps - (budget + 1 - held)) % tooth;
  }
};

// What a policy that drops many tokens at once is; nothing for others, and for a budget that grows.
std::optional<SawTooth> saw_tooth(const PolicySpec& spec, const Budget& budget, std::uint32_t prompt) {
  const PolicyInfo& info = policy_info(spec.name);
  if (info.recipe == nullptr || budget.kind == Budget::Kind::kFractionOfCurrent) return std::nullopt;
  const ScoreRecipe recipe = info.recipe(spec);
  if (recipe.kind != ScoreRecipe::Kind::kCounts) return std::nullopt;
  const std::uint32_t most = budget.tokens(prompt, prompt);
  return SawTooth{most, std::max<u64>(1, recipe.drop.of(most)), recipe.recent.of(most)};
}

}  // namespace

std::uint64_t tokens_after_eviction(const PolicySpec& spec, const PolicyTraits& traits, const Budget& budget,
                                    std::uint32_t prompt, std::uint32_t step, std::uint32_t window) {
  const u64 tokens = u64{prompt} + step;
  if (budget.kind == Budget::Kind::kUnlimited) return tokens;
  if (traits.schedule == Schedule::kPrefillOnly) return std::min(prompt, budget.tokens(prompt, prompt)) + u64{step};
  if (const auto teeth = saw_tooth(spec, budget, prompt)) {
    if (window > 0 && window <= teeth->budget) return tokens;
    return traits.streams_prompt ? teeth->later(0, tokens) : teeth->later(teeth->after_prompt(prompt), step);
  }
  const u64 there = tokens - step % traits.interval;
  return std::min<u64>(there, budget.tokens(prompt, static_cast<std::uint32_t>(there)));
}

}  // namespace kvroof
