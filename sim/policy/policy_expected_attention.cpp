#include "sim/policy/expected_attention.hpp"

namespace kvroof {
namespace {

class ExpectedAttentionPolicy final : public PromptScorer {
 public:
  ExpectedAttentionPolicy(const PolicySpec& spec, const PolicyContext& context)
      : PromptScorer(spec, context), expected_(spec, context) {}

  [[nodiscard]] std::size_t protected_of(std::size_t n) const override { return expected_.protected_of(n); }

 private:
  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    expected_.score(*request.tensors, order, scores);
  }

  // The queries that are expected are the whole prompt's.
  [[nodiscard]] bool scores_chunks_apart() const override { return false; }

  ExpectedAttention expected_;
};

constexpr ParamInfo kParams[] = {
    kFutureParam, kExpectedSinksParam, kCovarianceParam, kVnormParam, kEpsilonParam, kChunkParam, kKeyGroupParam,
};

}  // namespace

extern const PolicyInfo kExpectedAttentionPolicy;
constinit const PolicyInfo kExpectedAttentionPolicy = {
    .name = "expected-attention",
    .summary = "Keeps the tokens of the prompt to which later queries, distributed as the prompt's, will pay the most "
               "attention, times the norm of v.",
    .source = "Expected Attention: Devoto et al., 2025; as kvpress evicts, once after the prompt",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          PolicyTraits t = prompt_scorer_traits(spec, ExpectedAttention::needs(spec));
          t.undoes_rotation = true;
          return t;
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<ExpectedAttentionPolicy>(spec, context);
    },
};

}  // namespace kvroof
