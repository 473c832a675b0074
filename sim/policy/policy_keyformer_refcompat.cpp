#include "sim/attention/attention.hpp"
#include "sim/policy/masked_simulation.hpp"
#include "sim/policy/noise.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefaultRecent = {true, 0.3};

// Masks are and-ed from step to step, so that what left the recent window never comes back: once the budget is filled
// the key tokens stay the same to the end.
class KeyformerRefcompat final : public MaskedSimulation {
 public:
  KeyformerRefcompat(const PolicySpec& spec, const PolicyContext& context, NoiseSource noise)
      : MaskedSimulation(context),
        budget_(spec.budget),
        recent_(tokens_or_share(spec, "recent", kDefaultRecent)),
        mode_(keyformer_noise(spec)),
        temperature_(keyformer_temperature(spec)),
        noise_(std::move(noise)),
        drawn_(context.storage_heads) {}

 private:
  [[nodiscard]] Sizes sizes(std::uint32_t tokens) const override {
    const std::uint32_t budget = budget_.tokens(context().prompt, tokens);
    const std::uint32_t recent = recent_.of(budget);
    return {budget - recent, recent};
  }
  void weigh(HeadId head, std::uint32_t g, const AttentionRows& rows, std::span<const TokenPos> positions,
             std::span<const float> logits, std::span<float> weights) override {
    std::vector<float>& drawn = drawn_[head.value];
    drawn.resize(mode_ == NoiseMode::kNone ? 0 : logits.size());
    if (!drawn.empty()) {
      NoiseKey key = noise_key(context(), head.value * context().group + g);
      if (mode_ == NoiseMode::kPerQuery) key.query_position = rows.query.value;
      noise_(key, positions, drawn);
    }
    softmax_with_noise(logits, drawn, temperature_.at(rows.step, context().requested_new_tokens), weights);
  }
  [[nodiscard]] bool returns() const override { return false; }

  Budget budget_;
  TokensOrShare recent_;
  NoiseMode mode_;
  Temperature temperature_;
  NoiseSource noise_;
  std::vector<std::vector<float>> drawn_;  // by head
};

constexpr ParamInfo kParams[] = {
    {"recent", "tokens | share of k", "0.3", "last tokens that each query sees, its own among them"},
    {"noise", "token | query | none", "token",
     "Gumbel noise on the logits: drawn once a token, anew for every query as the published code does, or none"},
    {"tau", "A..B", "1..2", "temperature: A in the prompt, then rising evenly to B with the last requested token"},
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_keyformer_refcompat(const PolicySpec& spec, const PolicyContext& context,
                                                         NoiseSource noise) {
  return std::make_unique<KeyformerRefcompat>(spec, context, std::move(noise));
}

extern const PolicyInfo kKeyformerRefcompatPolicy;
constinit const PolicyInfo kKeyformerRefcompatPolicy = {
    .name = "keyformer-refcompat",
    .summary = "Keyformer as its published code masks tokens: everything stays in the cache, each query sees k tokens, "
               "and the key tokens never change once k is filled.",
    .source = "d-matrix-ai/keyformer-llm, the masked attention for MPT and GPT-J",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          PolicyTraits t = masked_traits();
          const PolicyTraits paper = policy_info("keyformer").traits(spec);
          t.flops_per_slot = paper.flops_per_slot;
          // Every row asks for all draws again: nothing is kept of them.
          t.noise_flops_per_slot = paper.noise_flops_per_slot + paper.noise_flops_per_token;
          return t;
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return make_keyformer_refcompat(spec, context, gumbel_draws);
    },
};

}  // namespace kvroof
