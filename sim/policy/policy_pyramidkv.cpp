#include "sim/policy/layer_budgets.hpp"
#include "sim/policy/table_helpers.hpp"
#include "sim/policy/window_scores.hpp"

namespace kvroof {
namespace {

PyramidRule pyramid_rule(const PolicySpec& spec) {
  return {window_rule(spec).window, spec.count("beta", PyramidRule().beta, 1)};
}

// SnapKV's scores under a budget that shrinks from layer to layer.
class PyramidKv final : public WindowScoredPolicy {
 public:
  PyramidKv(const PolicySpec& spec, const PolicyContext& context)
      : WindowScoredPolicy(window_rule(spec), context),
        pyramid_(pyramid_rule(spec)),
        kvpress_(is_kvpress_rule(spec)),
        budget_(spec.budget) {}

  void capacities(TokenPos, std::uint32_t budget, std::span<std::uint32_t> slots) override {
    const std::uint32_t own = kvpress_ ? pyramid_budget_kvpress(pyramid_, context(), kept(budget))
                                       : pyramid_budget(pyramid_, context(), budget);
    for (std::uint32_t& head : slots) head = own;
  }

 private:
  // A compression is no whole number of tokens.
  [[nodiscard]] double kept(std::uint32_t budget) const {
    return budget_.kind == Budget::Kind::kCompression ? context().prompt * (1 - budget_.value) : budget;
  }

  PyramidRule pyramid_;
  bool kvpress_;
  Budget budget_;
};

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = window_traits(spec, window_rule(spec));
  t.capacities = Capacities::kByLayer;
  t.shares_by_depth = true;
  (void)pyramid_rule(spec);
  return t;
}

constexpr ParamInfo kParams[] = {
    {"beta", "count", "20", "how steep the pyramid is: the last layer keeps a beta-th of the mean beside the window"},
    kRuledWindowParam,
    kKernelParam,
    kPoolParam,
    kGroupParam,
    kRuleParam,
};

std::string advice(const PolicySpec& spec, std::uint32_t k) {
  return full_window_advice(window_rule(spec).window, k);
}

}  // namespace

extern const PolicyInfo kPyramidKvPolicy;
constinit const PolicyInfo kPyramidKvPolicy = {
    .name = "pyramidkv",
    .summary = "SnapKV's scores with more budget in the first layers than in the last: k is the mean.",
    .source = "PyramidKV: Cai et al., 2024; as KVCache-Factory and kvpress do",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<PyramidKv>(spec, context);
    },
    .advice = advice,
};

}  // namespace kvroof
