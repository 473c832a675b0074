// Tensor names of OLMo 2: norms of outputs only.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_olmo2(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.attention_norm = {},
                       .attention_out_norm = "post_attention_layernorm",
                       .mlp_norm = {},
                       .mlp_out_norm = "post_feedforward_layernorm"});
}

}  // namespace kvroof
