// Tensor names of Falcon checkpoints; the names of a layer's norms differ between the generations.
#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

std::vector<TensorBinding> bind_falcon(const ModelConfig& config, ModelWeights& weights) {
  const ModelShape& shape = config.shape;
  const bool parallel = config.options.residual == ResidualOrder::kParallel;
  const bool two_norms = shape.norms_per_layer == 2;
  WeightBinder binder;
  binder.matrix("word_embeddings.weight", weights.embedding, shape.vocab, shape.hidden);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const std::string layer = fmt::format("h.{}", i);
    LayerWeights& w = weights.layers[i];
    const std::string attention_norm = parallel && two_norms ? ".ln_attn" : ".input_layernorm";
    const std::string mlp_norm = parallel ? ".ln_mlp" : ".post_attention_layernorm";
    binder.norm(layer + attention_norm, w.attention_norm, shape.hidden, shape.norm_bias);
    if (two_norms) binder.norm(layer + mlp_norm, w.mlp_norm, shape.hidden, shape.norm_bias);
    binder.megatron_layer(layer + ".self_attention", layer + ".mlp", shape, w);
  }
  binder.norm("ln_f", weights.final_norm, shape.hidden, shape.norm_bias);
  return binder.take();
}

}  // namespace kvroof
