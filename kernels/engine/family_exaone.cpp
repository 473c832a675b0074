// Tensor names of EXAONE 3, which are GPT-2's, and of EXAONE with experts.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

void bind_exaone_attention(WeightBinder& binder, const ModelShape& shape, const std::string& layer, LayerWeights& w) {
  bind_projections(binder, shape, layer + ".attn.attention.", w, "out_proj");
}

}  // namespace

std::vector<TensorBinding> bind_exaone(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.layers = "h",
                       .attention_norm = "ln_1",
                       .mlp_norm = "ln_2",
                       .attention = bind_exaone_attention,
                       .parts = {.gate = "c_fc_0", .up = "c_fc_1", .down = "c_proj"},
                       .embedding = "wte",
                       .final_norm = "ln_f"});
}

std::vector<TensorBinding> bind_exaone_moe(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.shared_expert = "shared_experts", .router_bias = "e_score_correction_bias"});
}

}  // namespace kvroof
