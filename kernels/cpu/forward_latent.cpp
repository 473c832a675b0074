// The projections of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1), absorbed: queries meet
// the latent rows that the cache holds, and no k or v of a head is ever made.
#include <algorithm>

#include "kernels/cpu/forward.hpp"

namespace kvroof {
namespace {

// Copies `count` elements at from_first of every row of `from` to to_first of the same row of `to`.
void copy_parts(std::span<const float> from, std::size_t from_width, std::size_t from_first, std::span<float> to,
                std::size_t to_width, std::size_t to_first, std::size_t count) {
  for (std::size_t row = 0; row < from.size() / from_width; ++row) {
    std::copy_n(from.data() + row * from_width + from_first, count, to.data() + row * to_width + to_first);
  }
}

}  // namespace

NormRule Forward::latent_norm_rule() const {
  NormRule rule = norm_rule();
  rule.eps = model_.config.options.latent_norm_eps;
  return rule;
}

void Forward::project_latent(LayerId layer, std::span<const float> in, const ForwardTokens& tokens) {
  make_latent_rows(layer, in, tokens);
  make_latent_queries(layer, in, tokens);
  absorb_k_up(layer);
}

// k_ = [norm(latent), rotated k_rope]; v_ is its leading part once more, as the trace wants it.
void Forward::make_latent_rows(LayerId layer, std::span<const float> in, const ForwardTokens& tokens) {
  const ModelShape& s = model_.config.shape;
  const LatentWeights& w = model_.layer(layer).latent;
  ops_.linear(in, w.kv_down.matrix, w.kv_down.bias_or_none(), k_);
  rotate(layer, k_, 1, s.head_dim, s.latent_rank, tokens);
  copy_parts(k_, s.head_dim, 0, v_, s.latent_rank, 0, s.latent_rank);
  ops_.norm(v_, w.kv_norm, latent_norm_rule(), v_);
  copy_parts(v_, s.latent_rank, 0, k_, s.head_dim, 0, s.latent_rank);
}

// latent_q_ = [q_nope, rotated q_rope] of each head.
void Forward::make_latent_queries(LayerId layer, std::span<const float> in, const ForwardTokens& tokens) {
  const ModelShape& s = model_.config.shape;
  const LatentWeights& w = model_.layer(layer).latent;
  const std::uint32_t q_dim = s.latent_nope_dim + s.latent_rope_dim;
  latent_q_.resize(tokens.ids.size() * s.heads * q_dim);
  if (w.q_down.empty()) {
    ops_.linear(in, w.q_up, nullptr, latent_q_);
  } else {
    up_.resize(tokens.ids.size() * s.latent_q_rank);
    ops_.linear(in, w.q_down.matrix, w.q_down.bias_or_none(), up_);
    ops_.norm(up_, w.q_norm, latent_norm_rule(), up_);
    ops_.linear(up_, w.q_up, nullptr, latent_q_);
  }
  rotate(layer, latent_q_, s.heads, q_dim, s.latent_nope_dim, tokens);
}

// q_ = [k_upᵀ q_nope, q_rope] of each head: q_nope · (k_up latent) = (k_upᵀ q_nope) · latent.
void Forward::absorb_k_up(LayerId layer) {
  const ModelShape& s = model_.config.shape;
  const std::uint32_t q_dim = s.latent_nope_dim + s.latent_rope_dim;
  const std::size_t heads = latent_q_.size() / q_dim;  // of all tokens
  gate_.resize(heads * s.latent_nope_dim);
  up_.resize(heads * s.latent_rank);
  copy_parts(latent_q_, q_dim, 0, gate_, s.latent_nope_dim, 0, s.latent_nope_dim);
  ops_.linear_heads(gate_, model_.layer(layer).latent.k_up, s.heads, up_);
  copy_parts(up_, s.latent_rank, 0, q_, s.head_dim, 0, s.latent_rank);
  copy_parts(latent_q_, q_dim, s.latent_nope_dim, q_, s.head_dim, s.latent_rank, s.latent_rope_dim);
}

}  // namespace kvroof
