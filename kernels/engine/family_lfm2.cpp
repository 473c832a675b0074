// Tensor names of LFM2: names of its own for norms, MLP and experts; its convolution has no biases.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

void bind_attention_of_lfm2(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  bind_projections(binder, shape, layer + ".self_attn.", w, "out_proj");
  binder.norm(layer + ".self_attn.q_layernorm", w.q_norm, shape.head_dim, false);
  binder.norm(layer + ".self_attn.k_layernorm", w.k_norm, shape.head_dim, false);
}

void bind_short_convolution(WeightBinder& binder, const ModelShape& shape, const std::string& layer, StateWeights& w) {
  const std::size_t hidden = shape.hidden;
  binder.linear(layer + ".conv.in_proj", w.in, 3 * hidden, hidden, false);
  binder.taps(layer + ".conv.conv.weight", w.taps, hidden, shape.state.convolution);
  binder.linear(layer + ".conv.out_proj", w.out, hidden, hidden, false);
}

}  // namespace

std::vector<TensorBinding> bind_lfm2(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.attention_norm = "operator_norm",
                       .mlp_norm = "ffn_norm",
                       .attention = bind_attention_of_lfm2,
                       .state = bind_short_convolution,
                       .mlp = "feed_forward",
                       .parts = {.gate = "w1", .up = "w3", .down = "w2"},
                       .router_bias = config.shape.router_bias ? "expert_bias" : "",
                       .final_norm = "embedding_norm"});
}

}  // namespace kvroof
