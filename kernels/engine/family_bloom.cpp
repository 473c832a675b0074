// Tensor names of BLOOM checkpoints.
#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_bloom(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  WeightBinder binder;
  binder.matrix("word_embeddings.weight", weights.embedding, shape.vocab, shape.hidden);
  binder.norm("word_embeddings_layernorm", weights.embedding_norm, shape.hidden, shape.norm_bias);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const std::string layer = fmt::format("h.{}", i);
    LayerWeights& w = weights.layers[i];
    binder.norm(layer + ".input_layernorm", w.attention_norm, shape.hidden, shape.norm_bias);
    binder.norm(layer + ".post_attention_layernorm", w.mlp_norm, shape.hidden, shape.norm_bias);
    binder.megatron_layer(layer + ".self_attention", layer + ".mlp", shape, w);
  }
  binder.norm("ln_f", weights.final_norm, shape.hidden, shape.norm_bias);
  return binder.take();
}

}  // namespace kvroof
