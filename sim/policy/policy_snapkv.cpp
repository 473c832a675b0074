#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

PolicyTraits traits(const PolicySpec& spec) { return window_traits(spec, window_rule(spec)); }

constexpr ParamInfo kParams[] = {kRuledWindowParam, kKernelParam, kPoolParam, kGroupParam, kRuleParam};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  return full_window_advice(window_rule(spec).window, k);
}

}  // namespace

extern const PolicyInfo kSnapKvPolicy;
constinit const PolicyInfo kSnapKvPolicy = {
    .name = "snapkv",
    .summary = "Once after the prompt: keeps its last tokens and what they attend to most, pooled over neighbours.",
    .source = "SnapKV: Li et al., NeurIPS 2024; as its code and kvpress do",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<WindowScoredPolicy>(window_rule(spec), context);
    },
    .advice = advice,
};

}  // namespace kvroof
