// Tensor names of Phi-3: q, k and v in one tensor, gate and up in another.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

void bind_fused(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  const std::size_t q_width = std::size_t{shape.heads} * shape.head_dim;
  const std::size_t k_width = std::size_t{shape.kv_heads} * shape.head_dim;
  binder.fused(layer + ".self_attn.qkv_proj", {{&w.q, q_width}, {&w.k, k_width}, {&w.v, k_width}}, 1, shape.hidden,
               shape.qkv_bias);
  binder.linear(layer + ".self_attn.o_proj", w.o, shape.hidden, q_width, shape.out_bias);
}

}  // namespace

std::vector<TensorBinding> bind_phi3(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.attention = bind_fused, .fused_gate_up = "gate_up_proj"});
}

}  // namespace kvroof
