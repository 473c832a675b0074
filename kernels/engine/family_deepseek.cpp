// Tensor names of DeepSeek-V2 and V3: latent attention, whose kv_b_proj holds for each head the rows of its keys, then
// those of its values.
#include "kernels/engine/decoder_weights.hpp"

namespace kvroof {
namespace {

// kv_b_proj [heads · (nope + v), rank]: key rows go transposed to k_up, value rows to v_up.
void bind_expansion(WeightBinder& binder, const ModelShape& s, const std::string& attention, LatentWeights& w) {
  const std::size_t nope = s.latent_nope_dim;
  const std::size_t v = s.latent_v_dim;
  const std::size_t rank = s.latent_rank;
  TensorBinding tensor{attention + "kv_b_proj.weight", {s.heads * (nope + v), rank}, {}};
  for (std::size_t h = 0; h < s.heads; ++h) {
    const std::size_t first = h * (nope + v);
    tensor.blocks.push_back({&w.k_up, s.heads * rank, nope, first, h * rank, nope, true});
    tensor.blocks.push_back({&w.v_up, s.heads * v, rank, first + nope, h * v, v});
  }
  binder.add(std::move(tensor));
}

void bind_latent(WeightBinder& binder, const ModelShape& s, const std::string& layer, LayerWeights& w) {
  const std::string attention = layer + ".self_attn.";
  const std::size_t q_width = std::size_t{s.heads} * (s.latent_nope_dim + s.latent_rope_dim);
  if (s.latent_q_rank == 0) {
    binder.matrix(attention + "q_proj.weight", w.latent.q_up, q_width, s.hidden);
  } else {
    binder.linear(attention + "q_a_proj", w.latent.q_down, s.latent_q_rank, s.hidden, false);
    binder.norm(attention + "q_a_layernorm", w.latent.q_norm, s.latent_q_rank, false);
    binder.matrix(attention + "q_b_proj.weight", w.latent.q_up, q_width, s.latent_q_rank);
  }
  binder.linear(attention + "kv_a_proj_with_mqa", w.latent.kv_down, s.head_dim, s.hidden, false);
  binder.norm(attention + "kv_a_layernorm", w.latent.kv_norm, s.latent_rank, false);
  bind_expansion(binder, s, attention, w.latent);
  binder.linear(attention + "o_proj", w.o, s.hidden, std::size_t{s.heads} * s.latent_v_dim, false);
}

}  // namespace

std::vector<TensorBinding> bind_deepseek_v2(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights, {.attention = bind_latent, .shared_expert = "shared_experts"});
}

std::vector<TensorBinding> bind_deepseek_v3(const ModelConfig& config, ModelWeights& weights) {
  return bind_decoder(config, weights,
                      {.attention = bind_latent, .shared_expert = "shared_experts", .router_bias = kRouterBias});
}

}  // namespace kvroof
