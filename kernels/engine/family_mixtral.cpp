// Tensor names of Mixtral: experts under block_sparse_moe, their matrices as in LLaMA's first code.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_mixtral(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.mlp = "block_sparse_moe", .parts = {.gate = "w1", .up = "w3", .down = "w2"}});
}

}  // namespace kvroof
