#include "kernels/cpu/forward.hpp"

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

const Weight* optional(const Weight& weight) { return weight.empty() ? nullptr : &weight; }

}  // namespace

void Forward::resize(std::size_t tokens) {
  const ModelShape& shape = model_.config.shape;
  const std::size_t q_width = std::size_t{shape.heads} * shape.head_dim;
  x_.resize(tokens * shape.hidden);
  normed_.resize(tokens * shape.hidden);
  block_.resize(tokens * shape.hidden);
  q_.resize(tokens * q_width);
  k_.resize(tokens * shape.kv_heads * shape.head_dim);
  v_.resize(tokens * shape.kv_heads * shape.v_head_dim);
  attended_.resize(tokens * shape.heads * shape.v_head_dim);
  gate_.resize(tokens * shape.ffn);
  up_.resize(tokens * shape.ffn);
}

void Forward::attention_block(LayerId layer, std::span<const TokenPos> positions, AttentionStage& stage) {
  const ModelShape& shape = model_.config.shape;
  const ModelOptions& options = model_.config.options;
  const LayerWeights& w = model_.weights.layers[layer.value];
  ops_.rms_norm(x_, w.attention_norm, options.norm_eps, normed_);
  ops_.linear(normed_, w.q, optional(w.q_bias), q_);
  ops_.linear(normed_, w.k, optional(w.k_bias), k_);
  ops_.linear(normed_, w.v, optional(w.v_bias), v_);
  ops_.rotate(q_, positions, shape.heads, shape.head_dim, options.rotary_dims, options.rope_theta,
              RotaryStyle::kHalfSplit);
  ops_.rotate(k_, positions, shape.kv_heads, shape.head_dim, options.rotary_dims, options.rope_theta,
              RotaryStyle::kHalfSplit);
  stage.attend(layer, q_, k_, v_, attended_);
  ops_.linear(attended_, w.o, optional(w.o_bias), block_);
  ops_.add_residual(x_, block_);
}

void Forward::mlp_block(LayerId layer) {
  const LayerWeights& w = model_.weights.layers[layer.value];
  ops_.rms_norm(x_, w.mlp_norm, model_.config.options.norm_eps, normed_);
  ops_.linear(normed_, w.gate, optional(w.gate_bias), gate_);
  ops_.linear(normed_, w.up, optional(w.up_bias), up_);
  ops_.gated_silu(gate_, up_, gate_);
  ops_.linear(gate_, w.down, optional(w.down_bias), block_);
  ops_.add_residual(x_, block_);
}

void Forward::run(std::span<const std::int64_t> ids, std::span<const TokenPos> positions, AttentionStage& stage,
                  std::span<float> logits) {
  const ModelShape& shape = model_.config.shape;
  const std::size_t rows = logits.size() / shape.vocab;
  check(ids.size() == positions.size() && rows <= ids.size() && rows * shape.vocab == logits.size(),
        "forward: sizes agree");
  resize(ids.size());
  ops_.embed(model_.weights.embedding, ids, x_);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    attention_block(LayerId(layer), positions, stage);
    mlp_block(LayerId(layer));
  }
  if (rows == 0) return;
  const std::span<const float> last = std::span<const float>(x_).last(rows * shape.hidden);
  const std::span<float> normed = std::span<float>(normed_).first(last.size());
  ops_.rms_norm(last, model_.weights.final_norm, model_.config.options.norm_eps, normed);
  ops_.linear(normed, model_.head(), nullptr, logits);
}

}  // namespace kvroof
