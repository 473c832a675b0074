// Tensor names of LLaMA checkpoints, and of families whose shape says all that differs.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_llama(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {});
}

}  // namespace kvroof
