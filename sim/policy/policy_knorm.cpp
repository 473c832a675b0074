#include "sim/policy/prompt_scorer.hpp"

namespace kvroof {
namespace {

// The score of a token is −‖k‖.
class Knorm final : public PromptScorer {
 public:
  using PromptScorer::PromptScorer;

 private:
  void score(HeadId, const EvictRequest& request, std::span<const SlotId> order, std::vector<float>& scores) override {
    HeadTensors& tensors = *request.tensors;
    tensors.read_keys(order, keys_);
    const std::size_t width = tensors.key_width();
    scores.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      scores[i] = static_cast<float>(-norm_of(std::span(keys_).subspan(i * width, width)));
    }
    tensors.count_flops(2.0 * static_cast<double>(keys_.size()));
  }

  std::vector<float> keys_;
};

constexpr ParamInfo kParams[] = {
    kChunkParam,
    kLaterParam,
    kKeyGroupParam,
};

}  // namespace

extern const PolicyInfo kKnormPolicy;
constinit const PolicyInfo kKnormPolicy = {
    .name = "knorm",
    .summary = "Keeps the tokens of the prompt whose keys have the smallest Euclidean norm.",
    .source = "L2 norm: Devoto et al., EMNLP 2024; as kvpress and KVCache-Factory evict, once after the prompt; with "
              "when, also while decoding",
    .params = kParams,
    .traits =
        [](const PolicySpec& spec) { return prompt_scorer_traits(spec, {.keys = true}); },
    .make = [](const PolicySpec& spec, const PolicyContext& context) -> std::unique_ptr<EvictionPolicy> {
      return std::make_unique<Knorm>(spec, context);
    },
};

}  // namespace kvroof
