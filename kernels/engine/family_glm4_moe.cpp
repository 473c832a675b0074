// Tensor names of GLM-4.5 and 4.6: LLaMA's, with DeepSeek-V3's experts.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_glm4_moe(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.shared_expert = "shared_experts", .router_bias = kRouterBias});
}

}  // namespace kvroof
