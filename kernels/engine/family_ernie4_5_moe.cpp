// Tensor names of ERNIE 4.5 with experts: DeepSeek's, but for the biases that choose experts.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_ernie4_5_moe(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.shared_expert = "shared_experts",
                       .router_bias = "moe_statics.e_score_correction_bias",
                       .router_bias_is_row = true});
}

}  // namespace kvroof
