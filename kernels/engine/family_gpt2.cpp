// Tensor names of GPT-2 and Cerebras-GPT checkpoints, whose matrices are stored [in, out].
#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_gpt2(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  WeightBinder binder;
  binder.matrix("wte.weight", weights.embedding, shape.vocab, shape.hidden);
  binder.matrix("wpe.weight", weights.positions, shape.position_rows, shape.hidden);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const std::string layer = fmt::format("h.{}", i);
    LayerWeights& w = weights.layers[i];
    binder.norm(layer + ".ln_1", w.attention_norm, shape.hidden, shape.norm_bias);
    binder.fused_qkv(layer + ".attn.c_attn", shape, w, 1, true);
    binder.conv1d(layer + ".attn.c_proj", w.o, shape.hidden, shape.hidden, shape.out_bias);
    binder.norm(layer + ".ln_2", w.mlp_norm, shape.hidden, shape.norm_bias);
    binder.conv1d(layer + ".mlp.c_fc", w.mlp.up, shape.ffn, shape.hidden, shape.mlp_bias);
    binder.conv1d(layer + ".mlp.c_proj", w.mlp.down, shape.hidden, shape.ffn, shape.mlp_bias);
  }
  binder.norm("ln_f", weights.final_norm, shape.hidden, shape.norm_bias);
  return binder.take();
}

}  // namespace kvroof
