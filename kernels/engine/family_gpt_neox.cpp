// Tensor names of GPT-NeoX and Pythia checkpoints.
#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_gpt_neox(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  WeightBinder binder;
  binder.matrix("embed_in.weight", weights.embedding, shape.vocab, shape.hidden);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const std::string layer = fmt::format("layers.{}", i);
    LayerWeights& w = weights.layers[i];
    binder.norm(layer + ".input_layernorm", w.attention_norm, shape.hidden, shape.norm_bias);
    binder.norm(layer + ".post_attention_layernorm", w.mlp_norm, shape.hidden, shape.norm_bias);
    binder.megatron_layer(layer + ".attention", layer + ".mlp", shape, w);
  }
  binder.norm("final_layer_norm", weights.final_norm, shape.hidden, shape.norm_bias);
  return binder.take();
}

}  // namespace kvroof
