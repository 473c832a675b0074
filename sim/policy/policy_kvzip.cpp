#include "sim/policy/given_scores.hpp"

namespace kvroof {
namespace {

// Tokens that the authors' code and kvpress have repeated at once.
constexpr std::uint32_t kChunk = 2048;

ScorePool pool_of(const PolicySpec& spec) {
  return spec.choice("share", {"model", "layer"}, "model") == "model" ? ScorePool::kModel : ScorePool::kLayer;
}

// With scores nothing is left to be asked of the model.
PolicyTraits traits(const PolicySpec& spec) {
  PolicyTraits t = prompt_scorer_traits(spec, {});
  pool_of(spec);
  t.capacities = Capacities::kByHead;
  t.repeats = spec.count("repeat", kChunk, 1);
  const bool has_scores = spec.token_scores != nullptr || spec.find(kScoresFileParam.name).value_or("none") != "none";
  t.needs.add(HostNeed::kRepetition, !has_scores);
  t.tells_heads_apart = has_scores;
  return t;
}

constexpr ParamInfo kParams[] = {
    {"share", "model | layer", "model",
     "whose best tokens stay: as many as k a head in all of the heads of the model, or of each layer"},
    {"repeat", "tokens", "2048", "the model repeats so many tokens of the prompt at a time"},
    kScoresFileParam,
};

}  // namespace

extern const PolicyInfo kKvZipPolicy;
constinit const PolicyInfo kKvZipPolicy = {
    .name = "kvzip",
    .summary = "Has the model repeat the prompt, and keeps the tokens that any row of the repetition pays the most "
               "attention to.",
    .source = "Kim et al. 2025 (arXiv:2505.23416), as kvpress' KVzipPress",
    .params = kParams,
    .traits = traits,
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<GivenScores>(spec, context, pool_of(spec));
    },
};

}  // namespace kvroof
