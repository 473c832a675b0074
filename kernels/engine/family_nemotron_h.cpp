// Tensor names of Nemotron-H and Nemotron 3: each mixer, MLP and group of experts is a layer with a norm of its own.
#include "kernels/engine/decoder_weights.hpp"
#include "kernels/engine/mamba2_weights.hpp"

namespace kvroof {
namespace {

void bind_nemotron_attention(WeightBinder& binder, const ModelShape& shape, const std::string& layer,
                             LayerWeights& w) {
  bind_projections(binder, shape, layer + ".mixer.", w);
}

void bind_nemotron_state(WeightBinder& binder, const ModelShape& shape, const std::string& layer, StateWeights& w) {
  bind_mamba2(binder, shape, layer + ".mixer.", w);
}

}  // namespace

std::vector<TensorBinding> bind_nemotron_h(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.apart = true,
                       .attention_norm = "norm",
                       .mlp_norm = "norm",
                       .attention = bind_nemotron_attention,
                       .state = bind_nemotron_state,
                       .mlp = "mixer",
                       .shared_expert = "shared_experts",
                       .router_bias = kRouterBias,
                       .embedding = "embeddings",
                       .final_norm = "norm_f"});
}

}  // namespace kvroof
