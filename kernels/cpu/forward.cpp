#include "kernels/cpu/forward.hpp"

#include <algorithm>
#include <cmath>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

const Weight* optional(const Weight& weight) { return weight.empty() ? nullptr : &weight; }

// These change what a product has just written, where it is written: they move no bytes of their own.
void clamp_all(std::span<float> x, float limit) {
  for (float& value : x) value = std::clamp(value, -limit, limit);
}

// Copies `count` elements at from_first of every row of `from` to to_first of the same row of `to`.
void copy_parts(std::span<const float> from, std::size_t from_width, std::size_t from_first, std::span<float> to,
                std::size_t to_width, std::size_t to_first, std::size_t count) {
  for (std::size_t row = 0; row < from.size() / from_width; ++row) {
    std::copy_n(from.data() + row * from_width + from_first, count, to.data() + row * to_width + to_first);
  }
}

void scale_and_cap(std::span<float> x, float scale, float cap) {
  if (scale != 1) {
    for (float& value : x) value *= scale;
  }
  if (cap > 0) {
    for (float& value : x) value = cap * std::tanh(value / cap);
  }
}

}  // namespace

void Forward::resize(std::size_t tokens) {
  const ModelShape& shape = model_.config.shape;
  x_.resize(tokens * shape.hidden);
  normed_.resize(tokens * shape.hidden);
  block_.resize(tokens * shape.hidden);
  q_.resize(tokens * shape.heads * shape.head_dim);
  k_.resize(tokens * shape.kv_heads * shape.head_dim);
  v_.resize(tokens * shape.kv_heads * shape.v_head_dim);
  attended_.resize(tokens * shape.heads * shape.v_head_dim);
  if (shape.latent()) heads_.resize(tokens * shape.heads * shape.latent_v_dim);
}

NormRule Forward::norm_rule() const {
  const ModelOptions& options = model_.config.options;
  return {model_.config.shape.norm, options.norm_eps, options.norm_offset};
}

std::span<const float> Forward::normed(std::span<const float> x, const Norm& norm) {
  if (norm.empty()) return x;
  const std::span<float> out = std::span<float>(normed_).first(x.size());
  ops_.norm(x, norm, norm_rule(), out);
  return out;
}

void Forward::norm_in_place(std::span<float> x, const Norm& norm) {
  if (!norm.empty()) ops_.norm(x, norm, norm_rule(), x);
}

void Forward::embed(const ForwardTokens& tokens) {
  const ModelWeights& w = model_.weights;
  const ModelOptions& options = model_.config.options;
  if (w.project_in.empty()) {
    ops_.embed(w.embedding, tokens.ids, options.embedding_scale, x_);
  } else {
    up_.resize(tokens.ids.size() * w.embedding.cols);
    ops_.embed(w.embedding, tokens.ids, options.embedding_scale, up_);
    ops_.linear(up_, w.project_in, nullptr, x_);
  }
  if (!w.positions.empty()) {
    position_rows_.clear();
    for (const TokenPos p : tokens.positions) position_rows_.push_back(p.value + options.position_offset);
    ops_.add_rows(w.positions, position_rows_, x_);
  }
  norm_in_place(x_, w.embedding_norm);
  use_long_.clear();
  for (const RotaryRule& rule : options.rotary) {
    if (rule.long_from == 0) continue;
    for (const std::uint32_t prompt : tokens.prompts) use_long_.push_back(prompt > rule.long_from ? 1 : 0);
    break;
  }
}

void Forward::rotate(LayerId layer, std::span<float> x, std::uint32_t heads, std::uint32_t head_dim,
                     std::uint32_t first, const ForwardTokens& tokens) {
  const ModelOptions& options = model_.config.options;
  if (options.rotary.empty()) return;
  ops_.rotate(x, {tokens.positions, use_long_}, heads, head_dim, first,
              options.rotary[options.layers[layer.value].rotary]);
}

void Forward::project_heads(LayerId layer, std::span<const float> in, const ForwardTokens& tokens) {
  const ModelShape& shape = model_.config.shape;
  const LayerWeights& w = model_.weights.layers[layer.value];
  ops_.linear(in, w.q.matrix, optional(w.q.bias), q_);
  ops_.linear(in, w.k.matrix, optional(w.k.bias), k_);
  ops_.linear(in, w.v.matrix, optional(w.v.bias), v_);
  if (const float clip = model_.config.options.qkv_clip; clip > 0) {
    for (std::vector<float>* part : {&q_, &k_, &v_}) clamp_all(*part, clip);
  }
  norm_in_place(q_, w.q_norm);
  norm_in_place(k_, w.k_norm);
  rotate(layer, q_, shape.heads, shape.head_dim, 0, tokens);
  rotate(layer, k_, shape.kv_heads, shape.head_dim, 0, tokens);
}

// q_ = [k_upᵀ q_nope, rotated q_rope] and k_ = [latent, rotated k_rope]: their product is that of the expanded heads.
void Forward::project_latent(LayerId layer, std::span<const float> in, const ForwardTokens& tokens) {
  const ModelShape& s = model_.config.shape;
  const LatentWeights& w = model_.weights.layers[layer.value].latent;
  const std::size_t count = tokens.ids.size();
  const std::uint32_t q_dim = s.latent_nope_dim + s.latent_rope_dim;
  latent_q_.resize(count * s.heads * q_dim);
  if (w.q_down.empty()) {
    ops_.linear(in, w.q_up, nullptr, latent_q_);
  } else {
    up_.resize(count * s.latent_q_rank);
    ops_.linear(in, w.q_down.matrix, optional(w.q_down.bias), up_);
    norm_in_place(up_, w.q_norm);
    ops_.linear(up_, w.q_up, nullptr, latent_q_);
  }
  rotate(layer, latent_q_, s.heads, q_dim, s.latent_nope_dim, tokens);
  ops_.linear(in, w.kv_down.matrix, optional(w.kv_down.bias), k_);
  rotate(layer, k_, 1, s.head_dim, s.latent_rank, tokens);
  copy_parts(k_, s.head_dim, 0, v_, s.latent_rank, 0, s.latent_rank);
  norm_in_place(v_, w.kv_norm);
  copy_parts(v_, s.latent_rank, 0, k_, s.head_dim, 0, s.latent_rank);
  // The absorbed product of each head, then its rotated part behind it.
  gate_.resize(count * s.heads * s.latent_nope_dim);
  up_.resize(count * s.heads * s.latent_rank);
  copy_parts(latent_q_, q_dim, 0, gate_, s.latent_nope_dim, 0, s.latent_nope_dim);
  ops_.linear_heads(gate_, w.k_up, s.heads, up_);
  copy_parts(up_, s.latent_rank, 0, q_, s.head_dim, 0, s.latent_rank);
  copy_parts(latent_q_, q_dim, s.latent_nope_dim, q_, s.head_dim, s.latent_rank, s.latent_rope_dim);
}

void Forward::attention(LayerId layer, std::span<const float> in, const ForwardTokens& tokens,
                        AttentionStage& stage) {
  const ModelShape& shape = model_.config.shape;
  const LayerWeights& w = model_.weights.layers[layer.value];
  if (shape.latent()) {
    project_latent(layer, in, tokens);
    stage.attend(layer, q_, k_, v_, attended_);
    ops_.linear_heads(attended_, w.latent.v_up, shape.heads, heads_);
    ops_.linear(heads_, w.o.matrix, optional(w.o.bias), block_);
    return;
  }
  project_heads(layer, in, tokens);
  stage.attend(layer, q_, k_, v_, attended_);
  ops_.linear(attended_, w.o.matrix, optional(w.o.bias), block_);
}

void Forward::mlp(LayerId layer, std::span<const float> in, std::span<float> out) {
  const ModelShape& shape = model_.config.shape;
  if (shape.is_expert_layer(layer.value)) {
    experts_.run(layer.value, in, out);
  } else {
    run_mlp(ops_, model_.weights.layers[layer.value].mlp, model_.config.options.activation, in, shape.ffn, gate_, up_,
            out);
  }
}

void Forward::layer(LayerId layer, const ForwardTokens& tokens, AttentionStage& stage) {
  const LayerWeights& w = model_.weights.layers[layer.value];
  const ResidualOrder order = model_.config.options.residual;
  if (order == ResidualOrder::kNormAfterAdd) {
    attention(layer, x_, tokens, stage);
    ops_.add_residual(x_, block_);
    norm_in_place(x_, w.attention_norm);
    mlp(layer, x_, block_);
    ops_.add_residual(x_, block_);
    norm_in_place(x_, w.mlp_norm);
    return;
  }
  const std::span<const float> in = normed(x_, w.attention_norm);
  attention(layer, in, tokens, stage);
  if (order == ResidualOrder::kParallel) {
    // attended_ is free again; the MLP reads the block's input, so the residual waits for both.
    attended_.resize(std::max(attended_.size(), x_.size()));
    const std::span<float> out = std::span<float>(attended_).first(x_.size());
    mlp(layer, w.mlp_norm.empty() ? in : normed(x_, w.mlp_norm), out);
    ops_.add_residual(x_, block_);
    ops_.add_residual(x_, out);
    attended_.resize(tokens.ids.size() * model_.config.shape.heads * model_.config.shape.v_head_dim);
    return;
  }
  norm_in_place(block_, w.attention_out_norm);
  ops_.add_residual(x_, block_);
  mlp(layer, normed(x_, w.mlp_norm), block_);
  norm_in_place(block_, w.mlp_out_norm);
  ops_.add_residual(x_, block_);
}

std::span<const float> Forward::head_input(std::size_t rows) {
  const ModelWeights& w = model_.weights;
  const auto last = normed(std::span<const float>(x_).last(rows * model_.config.shape.hidden), w.final_norm);
  if (w.project_out.empty()) return last;
  up_.resize(rows * w.project_out.rows);
  ops_.linear(last, w.project_out, nullptr, up_);
  return up_;
}

void Forward::head(std::span<const float> in, std::span<float> logits) {
  ops_.linear(in, model_.head(), optional(model_.weights.head_bias), logits);
  scale_and_cap(logits, model_.config.options.logit_scale, model_.config.options.logit_softcap);
}

void Forward::all_logits(std::size_t tokens, std::span<float> last, const LogitsSink& all) {
  const std::size_t vocab = model_.config.shape.vocab;
  const std::size_t block = logit_block(model_.config.shape.vocab);
  const std::span<const float> in = head_input(tokens);
  const std::size_t width = in.size() / tokens;
  logits_.resize(std::min(block, tokens) * vocab);
  for (std::size_t first = 0; first < tokens; first += block) {
    const std::size_t count = std::min(block, tokens - first);
    const std::span<float> logits = std::span<float>(logits_).first(count * vocab);
    head(in.subspan(first * width, count * width), logits);
    all(logits);
    if (first + count == tokens) std::ranges::copy(logits.last(last.size()), last.begin());
  }
}

void Forward::run(const ForwardTokens& tokens, AttentionStage& stage, std::span<float> logits, const LogitsSink& all) {
  const ModelShape& shape = model_.config.shape;
  const std::size_t count = tokens.ids.size();
  const std::size_t rows = logits.size() / shape.vocab;
  check(count == tokens.positions.size() && count == tokens.prompts.size() && rows <= count &&
            rows * shape.vocab == logits.size() && (!all || rows <= 1),
        "forward: sizes agree");
  resize(count);
  embed(tokens);
  for (std::uint32_t i = 0; i < shape.layers; ++i) layer(LayerId(i), tokens, stage);
  if (all) {
    all_logits(count, logits, all);
  } else if (rows > 0) {
    head(head_input(rows), logits);
  }
}

}  // namespace kvroof
