// Tensor names of GLM-4: four norms a layer, gate and up in one tensor.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_glm4(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.attention_out_norm = "post_self_attn_layernorm",
                       .mlp_out_norm = "post_mlp_layernorm",
                       .fused_gate_up = "gate_up_proj"});
}

}  // namespace kvroof
