// Tensor names of StarCoder2: a plain MLP under GPT-2's names.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_starcoder2(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.parts = {.gate = {}, .up = "c_fc", .down = "c_proj"}});
}

}  // namespace kvroof
