// Tensor names of Phi-1 to Phi-2: one norm a layer, a plain MLP, a bias of the head.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

void bind_phi_attention(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  const std::size_t q_width = std::size_t{shape.heads} * shape.head_dim;
  const std::size_t k_width = std::size_t{shape.kv_heads} * shape.head_dim;
  const std::string attention = layer + ".self_attn.";
  binder.linear(attention + "q_proj", w.q, q_width, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "k_proj", w.k, k_width, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "v_proj", w.v, k_width, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "dense", w.o, shape.hidden, q_width, shape.out_bias);
}

}  // namespace

std::vector<TensorBinding> bind_phi(const ModelConfig& config, ModelWeights& weights) {
  std::vector<TensorBinding> bindings = bind_decoder(config, weights,
                                                     {.mlp_norm = {},
                                                      .attention = bind_phi_attention,
                                                      .parts = {.gate = {}, .up = "fc1", .down = "fc2"},
                                                      .final_norm = "final_layernorm"});
  WeightBinder head;
  head.vector("lm_head.bias", weights.head_bias, config.shape.vocab);
  for (TensorBinding& binding : head.take()) bindings.push_back(std::move(binding));
  return bindings;
}

}  // namespace kvroof
