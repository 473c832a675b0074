// Tensor names of the first GLM-4: gate and up in one tensor.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_glm(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.fused_gate_up = "gate_up_proj"});
}

}  // namespace kvroof
