#include "sim/policy/attention_sums.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRecent = {true, 0.5};

ScoreRecipe recipe(const PolicySpec& spec) {
  return {.kind = ScoreRecipe::Kind::kAttentionSum,
          .recent = tokens_or_share(spec, "recent", kDefaultRecent),
          .reduction = group_reduction(spec)};
}

constexpr ParamInfo kParams[] = {
    {"recent", "tokens | share of k", "0.5", "most recent tokens, which always stay; the others are heavy hitters"},
    kGroupParam,
    kPageParam,
    kWhenParam,
    kLayersParam,
};

}  // namespace

extern const PolicyInfo kH2oPolicy;
constinit const PolicyInfo kH2oPolicy = {
    .name = "h2o",
    .summary = "Keeps recent tokens and heavy hitters: those with the largest attention summed over all rows so far.",
    .source = "H2O: Zhang et al., NeurIPS 2023; as its real-drop code evicts",
    .params = kParams,
    .traits = [](const PolicySpec& spec) { return attention_sums_traits(spec, kDefaultRecent); },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<AttentionSums>(tokens_or_share(spec, "recent", kDefaultRecent), group_reduction(spec),
                                             spec.count("page", 1), 1, context);
    },
    .recipe = recipe,
};

}  // namespace kvroof
