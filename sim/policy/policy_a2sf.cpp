#include "sim/policy/attention_sums.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRecent = {false, 16};

float forgetting_of(const PolicySpec& spec) { return static_cast<float>(spec.number("forgetting", 0.9, 0, 1)); }

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = attention_sums_traits(spec, kDefaultRecent);
  t.adds_up_rows = forgetting_of(spec) == 1;
  if (!t.adds_up_rows) ++t.flops_per_slot;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"forgetting", "share", "0.9",
     "what the attention of earlier rows keeps of its weight with every row; 1: all (h2o)"},
    {"recent", "tokens | share of k", "16", "most recent tokens, which always stay"},
    kGroupParam,
    kPageParam,
    kWhenParam,
    kLayersParam,
};

}  // namespace

extern const PolicyInfo kA2sfPolicy;
constinit const PolicyInfo kA2sfPolicy = {
    .name = "a2sf",
    .summary = "Keeps recent tokens and those with the largest sum of attention in which older rows fade.",
    .source = "A2SF: Jo and Shin, 2024; its rule, with a forgetting factor of one's own",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<AttentionSums>(tokens_or_share(spec, "recent", kDefaultRecent), group_reduction(spec),
                                             spec.count("page", 1), forgetting_of(spec), context);
    },
};

}  // namespace kvroof
