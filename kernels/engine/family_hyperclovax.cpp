// Tensor names of HyperCLOVA X: LLaMA's, mostly with norms of outputs.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_hyperclovax(const ModelConfig& config, ModelWeights& weights) {
  if (config.shape.norms_per_layer == 2) return bind_decoder(config, weights, {});
  return bind_decoder(config, weights, {.attention_out_norm = "post_norm1", .mlp_out_norm = "post_norm2"});
}

}  // namespace kvroof
