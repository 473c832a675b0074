// Tensor names of Granite 4, Mamba-2 or attention and in each layer a shared MLP, gate and up in one tensor, and of
// Granite 3 with experts. The experts of a layer, where there are some, share a tensor for gates and ups and one for
// downs.
#include "kernels/engine/decoder_weights.hpp"
#include "kernels/engine/mamba2_weights.hpp"

namespace kvroof {
namespace {

void bind_granite_state(WeightBinder& binder, const ModelShape& shape, const std::string& layer, StateWeights& w) {
  bind_mamba2(binder, shape, layer + ".mamba.", w);
}

void bind_granite_mlp(WeightBinder& binder, const std::string& name, std::size_t ffn, std::size_t hidden, Mlp& mlp) {
  binder.fused(name + ".input_linear", {{&mlp.gate, ffn}, {&mlp.up, ffn}}, 1, hidden, false);
  binder.linear(name + ".output_linear", mlp.down, hidden, ffn, false);
}

void bind_granite_experts(WeightBinder& binder, const ModelConfig& config, const std::string& layer,
                          ExpertWeights& w) {
  const ModelShape& shape = config.shape;
  const std::string experts = layer + ".block_sparse_moe.";
  const std::size_t hidden = shape.hidden, ffn = shape.expert_ffn;
  binder.linear(experts + "router.layer", w.router, shape.experts, hidden, false);
  TensorBinding in{experts + "input_linear.weight", {shape.experts, 2 * ffn, hidden}, {}};
  TensorBinding out{experts + "output_linear.weight", {shape.experts, hidden, ffn}, {}};
  in.width = hidden;
  out.width = ffn;
  for (std::size_t e = 0; e < shape.experts; ++e) {
    Mlp& mlp = w.routed[e];
    in.blocks.push_back({&mlp.gate.matrix, ffn, hidden, 2 * e * ffn, 0, ffn});
    in.blocks.push_back({&mlp.up.matrix, ffn, hidden, (2 * e + 1) * ffn, 0, ffn});
    out.blocks.push_back({&mlp.down.matrix, hidden, ffn, e * hidden, 0, hidden});
  }
  binder.add(std::move(in));
  binder.add(std::move(out));
  if (shape.shared_expert_ffn == 0) return;
  bind_granite_mlp(binder, layer + ".shared_mlp", shape.shared_expert_ffn, hidden, w.shared);
}

}  // namespace

std::vector<TensorBinding> bind_granitemoe(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.experts = bind_granite_experts});
}

std::vector<TensorBinding> bind_granitemoehybrid(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.state = bind_granite_state,
                       .experts = bind_granite_experts,
                       .mlp = "shared_mlp",
                       .parts = {.down = "output_linear"},
                       .fused_gate_up = "input_linear"});
}

}  // namespace kvroof
