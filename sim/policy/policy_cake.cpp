#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

constexpr double kDefaultGamma = 200;
constexpr double kMostGamma = 1e6;

WindowRule cake_rule(const PolicySpec& spec) {
  WindowRule rule = window_rule(spec);
  rule.pool_first = true;
  rule.variance = spec.number("gamma", kDefaultGamma, 0, kMostGamma);
  return rule;
}

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = window_traits(spec, cake_rule(spec));
  read_layers(spec, t);
  return t;
}

constexpr ParamInfo kParams[] = {
    {"gamma", "number", "200", "weight of the variance beside the mean"},
    kWindowParam,
    kKernelParam,
    kPoolParam,
    kGroupParam,
    kLayersParam,
};

// With budgets of their own some layers have room for more than the window.
std::string advice(const PolicySpec& spec, std::uint32_t k) {
  if (!layer_shares(spec).empty()) return {};
  return full_window_advice(cake_rule(spec).window, k);
}

}  // namespace

extern const PolicyInfo kCakePolicy;
constinit const PolicyInfo kCakePolicy = {
    .name = "cake",
    .summary = "Once after the prompt: keeps its last tokens and those to which they pay attention that is large or "
               "varies much from row to row, pooled over neighbours.",
    .source = "CAKE: Qin et al., ICLR 2025; its indicator of what to evict, without its budgets of layers",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<WindowScoredPolicy>(cake_rule(spec), context);
    },
    .advice = advice,
};

}  // namespace kvroof
