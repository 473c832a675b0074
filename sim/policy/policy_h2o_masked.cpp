#include "sim/attention/attention.hpp"
#include "sim/policy/masked_simulation.hpp"

namespace kvroof {
namespace {

constexpr TokensOrShare kDefault = {true, 0.1};

// A share of the prompt is int(share · n) in double precision, as in the published code.
std::uint32_t tokens_of(const TokensOrShare& size, std::uint32_t prompt) {
  return static_cast<std::uint32_t>(size.is_share ? size.value * prompt : size.value);
}

MaskedSimulation::Sizes sizes_of(const PolicySpec& spec, std::uint32_t prompt) {
  return {tokens_of(tokens_or_share(spec, "heavy", kDefault), prompt),
          tokens_of(tokens_or_share(spec, "recent", kDefault), prompt)};
}

class H2oMasked final : public MaskedSimulation {
 public:
  H2oMasked(Sizes sizes, const PolicyContext& context) : MaskedSimulation(context), sizes_(sizes) {}

 private:
  [[nodiscard]] Sizes sizes(std::uint32_t) const override { return sizes_; }
  void weigh(HeadId, std::uint32_t, const AttentionRows&, std::span<const TokenPos>, std::span<const float> logits,
             std::span<float> weights) override {
    softmax(logits, weights);
  }
  [[nodiscard]] bool returns() const override { return true; }

  Sizes sizes_;
};

constexpr ParamInfo kParams[] = {
    {"heavy", "tokens | share of the prompt", "0.1", "tokens with the largest sums that each query sees"},
    {"recent", "tokens | share of the prompt", "0.1", "last tokens that it sees, its own among them"},
};

}  // namespace

extern const PolicyInfo kH2oMaskedPolicy;
constinit const PolicyInfo kH2oMaskedPolicy = {
    .name = "h2o-masked",
    .summary = "H2O as its masked simulation does it: everything stays in the cache, and a token that was hidden may "
               "be seen again.",
    .source = "FMInference/H2O, the masked simulation for LLaMA, OPT and GPT-NeoX",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          (void)sizes_of(spec, 1);
          return masked_traits();
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<H2oMasked>(sizes_of(spec, context.prompt), context);
    },
    .takes_budget = false,
};

}  // namespace kvroof
