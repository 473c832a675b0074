// The part of DeviceForward that projects for multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1),
// absorbed as in the CPU back end: queries meet the latent rows, and no k or v of a head is ever made.
#include "kernels/cuda/device_forward.hpp"

namespace kvroof::cuda {

// Where the rows of a pass lie within its projections.
struct DeviceForward::LatentRows {
  float* q;     // [tokens, heads, nope + rope]
  float* kv;    // [tokens, head_dim]
  float* down;  // [tokens, q rank]
  float* out;   // [tokens, heads, v dim]
};

DeviceForward::LatentRows DeviceForward::latent_rows() const {
  const ModelShape& s = model_.host().config.shape;
  LatentRows rows{};
  rows.q = projections_.at<float>();
  rows.kv = rows.q + std::size_t{tokens_} * s.heads * (s.latent_nope_dim + s.latent_rope_dim);
  rows.down = rows.kv + std::size_t{tokens_} * s.head_dim;
  rows.out = rows.down + std::size_t{tokens_} * s.latent_q_rank;
  return rows;
}

void DeviceForward::project_latent(const DeviceLatent& w, const float* x, const DeviceNorm& norm,
                                   AttentionInput& input) {
  const ModelShape& s = model_.host().config.shape;
  const LatentRows rows = latent_rows();
  const std::uint32_t q_dim = s.latent_nope_dim + s.latent_rope_dim;
  if (w.q_down.matrix.rows > 0) {
    linear("q_down", x, norm, w.q_down, rows.down, false);
    LinearArguments up = with_norm(rows.down, w.q_norm);
    up.norm_eps = model_.host().config.options.latent_norm_eps;
    up.w = w.q_up;
    up.out = rows.q;
    launch_linear("q_up", up);
  } else {
    linear("q", x, norm, {w.q_up, nullptr}, rows.q, false);
  }
  LinearArguments kv = with_norm(x, norm);
  kv.w = w.kv_down.matrix;
  kv.bias = w.kv_down.bias;
  kv.out = rows.kv;
  launch_linear("kv_down", kv, false);
  // q_nope · (k_up latent) = (k_upᵀ q_nope) · latent.
  LinearArguments absorb;
  absorb.x = rows.q;
  absorb.x_row = s.heads * q_dim;
  absorb.tokens = tokens_;
  absorb.w = w.k_up;
  absorb.heads = {s.heads, q_dim, s.head_dim};
  absorb.out = input.queries;
  absorb.out_row = s.heads * s.head_dim;
  launch_linear("k_up", absorb);
  input.q = {rows.q + s.latent_nope_dim, s.heads * q_dim, q_dim};
  input.k = {rows.kv, s.head_dim, s.head_dim};
}

const float* DeviceForward::latent_output(const DeviceLatent& w) {
  const ModelShape& s = model_.host().config.shape;
  LinearArguments a;
  a.x = attended_.at<float>();
  a.x_row = s.heads * s.latent_rank;
  a.tokens = tokens_;
  a.w = w.v_up;
  a.heads = {s.heads, s.latent_rank, s.latent_v_dim};
  a.out = latent_rows().out;
  a.out_row = s.heads * s.latent_v_dim;
  launch_linear("v_up", a);
  return a.out;
}

}  // namespace kvroof::cuda
