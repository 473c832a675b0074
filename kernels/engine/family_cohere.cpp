// Tensor names of Cohere: one norm a layer, which attention and MLP share.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_cohere(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.mlp_norm = {}});
}

}  // namespace kvroof
