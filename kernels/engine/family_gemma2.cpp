// Tensor names of Gemma 2 and 3: four norms a layer, whose post_attention_layernorm is that of attention's output.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_gemma2(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.attention_out_norm = "post_attention_layernorm",
                       .mlp_norm = "pre_feedforward_layernorm",
                       .mlp_out_norm = "post_feedforward_layernorm"});
}

}  // namespace kvroof
