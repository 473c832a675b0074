#include "sim/policy/leverage.hpp"

namespace kvroof {
namespace {

class Leverage final : public PromptScorer {
 public:
  Leverage(const PolicySpec& spec, const PolicyContext& context, SketchSource source)
      : PromptScorer(spec, context), leverage_(spec, context, std::move(source)) {}

 private:
  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    HeadTensors& tensors = *request.tensors;
    tensors.read_keys(order, keys_);
    positions_.clear();
    for (const SlotId slot : order) positions_.push_back(request.positions[slot.value]);
    leverage_.score(positions_, tensors.key_width(), keys_, exact_);
    tensors.count_flops(leverage_.flops());
    scores.assign(exact_.begin(), exact_.end());
  }

  LeverageScores leverage_;
  std::vector<float> keys_;
  std::vector<TokenPos> positions_;
  std::vector<double> exact_;
};

constexpr ParamInfo kParams[] = {kSketchParam, kChunkParam, kKeyGroupParam};

}  // namespace

std::unique_ptr<EvictionPolicy> make_leverage(const PolicySpec& spec, const PolicyContext& context,
                                              SketchSource source) {
  return std::make_unique<Leverage>(spec, context, std::move(source));
}

extern const PolicyInfo kLeveragePolicy;
constinit const PolicyInfo kLeveragePolicy = {
    .name = "leverage",
    .summary = "Keeps the tokens of the prompt whose keys, before rotary embedding, have the largest leverage scores: "
               "those that the span of the others misses most.",
    .source = "Compactor: Chari and Van Durme, 2025; its approximate leverage scores, as kvpress evicts, once after "
              "the prompt",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) {
          PolicyTraits t = prompt_scorer_traits(spec, LeverageScores::needs(spec));
          t.undoes_rotation = true;
          return t;
        },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return make_leverage(spec, context, draw_sketch);
    },
};

}  // namespace kvroof
