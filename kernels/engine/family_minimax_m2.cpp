// Tensor names of MiniMax-M2: Mixtral's, with the biases that choose experts beside the router.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_minimax_m2(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.mlp = "block_sparse_moe",
                       .parts = {.gate = "w1", .up = "w3", .down = "w2"},
                       .router_bias = "e_score_correction_bias"});
}

}  // namespace kvroof
