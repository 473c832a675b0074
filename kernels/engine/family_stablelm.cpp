// Tensor names of StableLM: norms of q and k lie in a tensor for each head, and a parallel residual has one norm a
// layer.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

void bind_head_norms(WeightBinder& binder, const std::string& name, Norm& norm, std::size_t heads, std::size_t width) {
  for (std::size_t h = 0; h < heads; ++h) {
    binder.add(
        {fmt::format("{}.norms.{}.weight", name, h), {width}, {{&norm.scale, heads, width, 0, h * width, width}}});
  }
}

void bind_with_head_norms(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  bind_projections(binder, shape, layer + ".self_attn.", w);
  if (shape.qk_norm == QkNorm::kNone) return;
  bind_head_norms(binder, layer + ".self_attn.q_layernorm", w.q_norm, shape.heads, shape.head_dim);
  bind_head_norms(binder, layer + ".self_attn.k_layernorm", w.k_norm, shape.kv_heads, shape.head_dim);
}

}  // namespace

std::vector<TensorBinding> bind_stablelm(const ModelConfig& config, ModelWeights& weights) {
  DecoderNames names;
  names.attention = bind_with_head_norms;
  if (config.shape.norms_per_layer == 1) names.mlp_norm = {};
  return bind_decoder(config, weights, names);
}

}  // namespace kvroof
