// Tensor names of MPT checkpoints.
#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_mpt(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  WeightBinder binder;
  binder.matrix("wte.weight", weights.embedding, shape.vocab, shape.hidden);
  if (shape.position_rows > 0) {
    binder.matrix("wpe.weight", weights.positions, shape.position_rows, shape.hidden);
  }
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const std::string layer = fmt::format("blocks.{}", i);
    LayerWeights& w = weights.layers[i];
    binder.norm(layer + ".norm_1", w.attention_norm, shape.hidden, shape.norm_bias);
    binder.fused_qkv(layer + ".attn.Wqkv", shape, w, 1);
    if (shape.qk_norm != QkNorm::kNone) {
      binder.norm(layer + ".attn.q_ln", w.q_norm, std::size_t{shape.heads} * shape.head_dim, shape.norm_bias);
      binder.norm(layer + ".attn.k_ln", w.k_norm, std::size_t{shape.kv_heads} * shape.head_dim, shape.norm_bias);
    }
    binder.linear(layer + ".attn.out_proj", w.o, shape.hidden, shape.hidden, shape.out_bias);
    binder.norm(layer + ".norm_2", w.mlp_norm, shape.hidden, shape.norm_bias);
    binder.linear(layer + ".ffn.up_proj", w.mlp.up, shape.ffn, shape.hidden, shape.mlp_bias);
    binder.linear(layer + ".ffn.down_proj", w.mlp.down, shape.hidden, shape.ffn, shape.mlp_bias);
  }
  binder.norm("norm_f", weights.final_norm, shape.hidden, shape.norm_bias);
  return binder.take();
}

}  // namespace kvroof
