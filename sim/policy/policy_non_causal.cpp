#include "sim/policy/tile_attention.hpp"

namespace kvroof {
namespace {

class NonCausal final : public PromptScorer {
 public:
  NonCausal(const PolicySpec& spec, const PolicyContext& context)
      : PromptScorer(spec, context), attention_(spec), context_(context) {}

 private:
  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    HeadTensors& tensors = *request.tensors;
    tensors.read_keys(order, keys_);
    tensors.read_values(order, values_);
    read_queries_of_last(tensors, context_, order.size(), queries_);
    attention_.score({queries_, keys_, values_, tensors.key_width(), context_.group}, exact_);
    tensors.count_flops(attention_.flops());
    scores.assign(exact_.begin(), exact_.end());
  }

  TileAttention attention_;
  PolicyContext context_;
  std::vector<float> queries_, keys_, values_;
  std::vector<double> exact_;
};

constexpr ParamInfo kParams[] = {kTileParam, kPadParam, kKeyGroupParam};

}  // namespace

extern const PolicyInfo kNonCausalPolicy;
constinit const PolicyInfo kNonCausalPolicy = {
    .name = "non-causal",
    .summary = "Keeps the tokens of the prompt to which their neighbours, earlier and later ones, pay the most "
               "attention, times the norm of v.",
    .source = "Compactor: Chari and Van Durme, 2025; its non-causal attention, as kvpress evicts, once after the "
              "prompt",
    .params = kParams,
    .traits = [](const PolicySpec& spec) { return prompt_scorer_traits(spec, TileAttention::needs(spec)); },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<NonCausal>(spec, context);
    },
};

}  // namespace kvroof
