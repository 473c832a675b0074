#include "sim/policy/policy.hpp"

#include <limits>

#include "sim/core/error.hpp"

namespace kvroof {

void EvictionPolicy::add_keys(HeadId, std::span<const TokenPos>, HeadTensors&) {}

void EvictionPolicy::select(HeadId, std::uint32_t, const AttentionRows& rows, std::vector<SlotId>& read) {
  for (std::uint32_t s = 0; s < rows.slots(); ++s) read.emplace_back(s);
}

void EvictionPolicy::capacities(TokenPos, std::uint32_t, std::span<std::uint32_t>) {}

void EvictionPolicy::score_head(HeadId, const EvictRequest&) {}

void EvictionPolicy::merge(HeadId, const EvictRequest&, std::span<const SlotId>, std::vector<SlotMerge>&) {}

double EvictionPolicy::score_gap(HeadId, SlotId, SlotId) const { return std::numeric_limits<double>::infinity(); }

const PolicyInfo& policy_info(std::string_view name) {
  for (const PolicyInfo& info : policy_table()) {
    if (info.name == name) return info;
  }
  throw std::logic_error(fmt::format("broken invariant: policy `{}` is not in the table", name));
}

std::string refused_prompt(const PolicySpec& spec, std::uint32_t prompt) {
  return refused_prompt(spec, policy_info(spec.name).traits(spec), prompt);
}

std::string refused_prompt(const PolicySpec& spec, const PolicyTraits& traits, std::uint32_t prompt) {
  const LeastPrompt& least = traits.least_prompt;
  if (prompt >= least.tokens || spec.budget.tokens(prompt, prompt) >= prompt) return {};
  return fmt::format("policy {}: {}; expected at least {} tokens, found {}; give {} or a budget that keeps the whole "
                     "prompt", spec.name, least.why, least.tokens, prompt, least.remedy);
}

std::string policy_advice(const PolicySpec& spec, std::uint32_t prompt) {
  const PolicyInfo& info = policy_info(spec.name);
  if (info.advice == nullptr) return {};
  const std::uint32_t k = spec.budget.tokens(prompt, prompt);
  const bool evicts_later = info.traits(spec).schedule == Schedule::kEveryStep;
  if (k >= prompt && !evicts_later) return {};  // nothing is evicted
  const std::string sentence = info.advice(spec, k);
  return sentence.empty() ? sentence : fmt::format("{}: {}", spec.text(), sentence);
}

}  // namespace kvroof
