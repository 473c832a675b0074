// Tensor names of OPT checkpoints. A layer's final_layer_norm is the norm of its MLP.
#include "kernels/engine/weight_binder.hpp"

namespace kvroof {
namespace {

void bind_layer(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  const std::string attention = layer + ".self_attn.";
  binder.norm(layer + ".self_attn_layer_norm", w.attention_norm, shape.hidden, shape.norm_bias);
  binder.linear(attention + "q_proj", w.q, shape.hidden, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "k_proj", w.k, shape.hidden, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "v_proj", w.v, shape.hidden, shape.hidden, shape.qkv_bias);
  binder.linear(attention + "out_proj", w.o, shape.hidden, shape.hidden, shape.out_bias);
  binder.norm(layer + ".final_layer_norm", w.mlp_norm, shape.hidden, shape.norm_bias);
  binder.linear(layer + ".fc1", w.mlp.up, shape.ffn, shape.hidden, shape.mlp_bias);
  binder.linear(layer + ".fc2", w.mlp.down, shape.hidden, shape.ffn, shape.mlp_bias);
}

}  // namespace

std::vector<TensorBinding> bind_opt(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  WeightBinder binder;
  binder.matrix("decoder.embed_tokens.weight", weights.embedding, shape.vocab, shape.embedding_width);
  binder.matrix("decoder.embed_positions.weight", weights.positions, shape.position_rows, shape.hidden);
  if (shape.embedding_width != shape.hidden) {
    binder.matrix("decoder.project_in.weight", weights.project_in, shape.hidden, shape.embedding_width);
    binder.matrix("decoder.project_out.weight", weights.project_out, shape.embedding_width, shape.hidden);
  }
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    bind_layer(binder, shape, fmt::format("decoder.layers.{}", i), weights.layers[i]);
  }
  if (shape.final_norm) binder.norm("decoder.final_layer_norm", weights.final_norm, shape.hidden, shape.norm_bias);
  return binder.take();
}

}  // namespace kvroof
