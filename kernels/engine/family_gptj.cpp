// Tensor names of GPT-J checkpoints.
#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_gptj(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  WeightBinder binder;
  binder.matrix("wte.weight", weights.embedding, shape.vocab, shape.hidden);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const std::string layer = fmt::format("h.{}", i);
    LayerWeights& w = weights.layers[i];
    binder.norm(layer + ".ln_1", w.attention_norm, shape.hidden, shape.norm_bias);
    binder.linear(layer + ".attn.q_proj", w.q, shape.hidden, shape.hidden, shape.qkv_bias);
    binder.linear(layer + ".attn.k_proj", w.k, shape.hidden, shape.hidden, shape.qkv_bias);
    binder.linear(layer + ".attn.v_proj", w.v, shape.hidden, shape.hidden, shape.qkv_bias);
    binder.linear(layer + ".attn.out_proj", w.o, shape.hidden, shape.hidden, shape.out_bias);
    binder.linear(layer + ".mlp.fc_in", w.mlp.up, shape.ffn, shape.hidden, shape.mlp_bias);
    binder.linear(layer + ".mlp.fc_out", w.mlp.down, shape.hidden, shape.ffn, shape.mlp_bias);
  }
  binder.norm("ln_f", weights.final_norm, shape.hidden, shape.norm_bias);
  binder.vector("lm_head.bias", weights.head_bias, shape.vocab);
  return binder.take();
}

}  // namespace kvroof
