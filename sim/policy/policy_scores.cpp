#include "sim/policy/given_scores.hpp"

namespace kvroof {
namespace {

ScorePool pool_of(const PolicySpec& spec) {
  const std::string share = spec.choice("share", {"head", "layer", "model"}, "head");
  return share == "head" ? ScorePool::kHead : share == "layer" ? ScorePool::kLayer : ScorePool::kModel;
}

PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = prompt_scorer_traits(spec, {});
  if (pool_of(spec) != ScorePool::kHead) t.capacities = Capacities::kByHead;
  t.tells_heads_apart = true;
  return t;
}

constexpr ParamInfo kParams[] = {
    kScoresFileParam,
    {"share", "head | layer | model", "head",
     "whose best tokens stay: k of each head, or as many in all of the heads of a layer or of the model together"},
    {"group", "mean | none", "mean",
     "none: a set for each query head, k and v stored for each, and the file has scores for each; mean: one a KV head"},
};

}  // namespace

extern const PolicyInfo kScoresPolicy;
constinit const PolicyInfo kScoresPolicy = {
    .name = "scores",
    .summary = "Keeps the tokens of the prompt with the largest scores of a file: any method that scores a prompt "
               "outside the program.",
    .source = "a file of one's own; budgets over the heads of a layer or the model as in kvpress' KVzipPress",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<GivenScores>(spec, context, pool_of(spec));
    },
};

}  // namespace kvroof
