// Tensor names of LLaMA checkpoints.
#include "kernels/engine/weight_binder.hpp"

namespace kvroof {
namespace {

void bind_layer(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  const std::size_t q_width = std::size_t{shape.heads} * shape.head_dim;
  const std::size_t k_width = std::size_t{shape.kv_heads} * shape.head_dim;
  const std::string attention = layer + ".self_attn.";
  const std::string mlp = layer + ".mlp.";
  binder.norm(layer + ".input_layernorm", w.attention_norm, shape.hidden, false);
  binder.linear(attention + "q_proj", w.q, q_width, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "k_proj", w.k, k_width, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "v_proj", w.v, k_width, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "o_proj", w.o, shape.hidden, q_width, shape.out_bias);
  binder.norm(layer + ".post_attention_layernorm", w.mlp_norm, shape.hidden, false);
  binder.linear(mlp + "gate_proj", w.mlp.gate, shape.ffn, shape.hidden, shape.mlp_bias);
  binder.linear(mlp + "up_proj", w.mlp.up, shape.ffn, shape.hidden, shape.mlp_bias);
  binder.linear(mlp + "down_proj", w.mlp.down, shape.hidden, shape.ffn, shape.mlp_bias);
}

}  // namespace

std::vector<TensorBinding> bind_llama(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  WeightBinder binder;
  binder.matrix("embed_tokens.weight", weights.embedding, shape.vocab, shape.hidden);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    bind_layer(binder, shape, fmt::format("layers.{}", i), weights.layers[i]);
  }
  binder.norm("norm", weights.final_norm, shape.hidden, false);
  if (!shape.tied_head) binder.matrix("lm_head.weight", weights.head, shape.vocab, shape.hidden);
  return binder.take();
}

bool skipped_llama(const ModelConfig& config, std::string_view tensor) {
  return tensor.ends_with("rotary_emb.inv_freq") || (config.shape.tied_head && tensor == "lm_head.weight");
}

}  // namespace kvroof
