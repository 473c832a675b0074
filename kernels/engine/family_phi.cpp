// Tensor names of Phi-1 to Phi-2: one norm a layer, a plain MLP, a bias of the head.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

void bind_phi_attention(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  bind_projections(binder, shape, layer + ".self_attn.", w, "dense");
}

}  // namespace

std::vector<TensorBinding> bind_phi(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.mlp_norm = {},
                       .attention = bind_phi_attention,
                       .parts = {.gate = {}, .up = "fc1", .down = "fc2"},
                       .final_norm = "final_layernorm"});
}

}  // namespace kvroof
