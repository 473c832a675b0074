// Tensor names of Hunyuan: LLaMA's, with the norms of q and k and the shared expert under names of their own.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

void bind_hunyuan_attention(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  const std::string attention = layer + ".self_attn.";
  bind_projections(binder, shape, attention, w);
  binder.norm(attention + "query_layernorm", w.q_norm, shape.head_dim, false);
  binder.norm(attention + "key_layernorm", w.k_norm, shape.head_dim, false);
}

}  // namespace

std::vector<TensorBinding> bind_hunyuan(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.attention = bind_hunyuan_attention, .shared_expert = "shared_mlp", .router = "gate.wg"});
}

}  // namespace kvroof
