#include "kernels/cpu/forward.hpp"

#include <algorithm>

#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

// Changes what a product has just written, where it is written: no bytes move.
void clamp_all(std::span<float> x, float limit) {
  for (float& value : x) value = std::clamp(value, -limit, limit);
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
  if (model_.config.options.residual == ResidualOrder::kParallel) parallel_.resize(tokens * shape.hidden);
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
}

void Forward::rotate(LayerId layer, std::span<float> x, std::uint32_t heads, std::uint32_t head_dim,
                     std::uint32_t first, const ForwardTokens& tokens) {
  const ModelOptions& options = model_.config.options;
  if (options.rotary.empty()) return;
  const std::size_t number = options.layers[layer.value].rotary, count = tokens.ids.size();
  const RotaryRule& rule = options.rotary[number];
  const std::span<const std::uint8_t> all = use_long_;
  const auto use_long = rule.long_from > 0 ? all.subspan(number * count, count) : all.first(0);
  if (rule.dims > 0) ops_.rotate(x, {tokens.positions, use_long}, heads, head_dim, first, rule);
}

void Forward::scale_queries(const ForwardTokens& tokens) {
  const QueryScale& scale = model_.config.options.query_scale;
  if (!scale) return;
  const std::size_t width = q_.size() / tokens.positions.size();
  for (std::size_t t = 0; t < tokens.positions.size(); ++t) {
    const float factor = scale.at(tokens.positions[t].value);
    for (float& x : std::span(q_).subspan(t * width, width)) x *= factor;
  }
}

void Forward::project_heads(LayerId layer, std::span<const float> in, const ForwardTokens& tokens) {
  const ModelShape& shape = model_.config.shape;
  const LayerWeights& w = model_.layer(layer);
  ops_.linear(in, w.q.matrix, w.q.bias_or_none(), q_);
  ops_.linear(in, w.k.matrix, w.k.bias_or_none(), k_);
  ops_.linear(in, w.v.matrix, w.v.bias_or_none(), v_);
  if (const float clip = model_.config.options.qkv_clip; clip > 0) {
    for (std::vector<float>* part : {&q_, &k_, &v_}) clamp_all(*part, clip);
  }
  const bool late = model_.config.options.norms_after_rotary;
  const auto norms = [&] {
    norm_in_place(q_, w.q_norm);
    norm_in_place(k_, w.k_norm);
  };
  if (!late) norms();
  rotate(layer, q_, shape.heads, shape.head_dim, 0, tokens);
  rotate(layer, k_, shape.kv_heads, shape.head_dim, 0, tokens);
  if (late) norms();
}

void Forward::attention(LayerId layer, std::span<const float> in, const ForwardTokens& tokens,
                        AttentionStage& stage) {
  const ModelShape& shape = model_.config.shape;
  const LayerWeights& w = model_.layer(layer);
  std::span<const float> heads = attended_;
  ops_.counters().add(Cause::kWeights, w.sinks.bytes());  // attention reads them
  if (shape.latent()) {
    project_latent(layer, in, tokens);
    scale_queries(tokens);
    stage.attend(layer, q_, k_, v_, attended_);
    heads_.resize(tokens.ids.size() * shape.heads * shape.latent_v_dim);
    ops_.linear_heads(attended_, w.latent.v_up, shape.heads, heads_);
    heads = heads_;
  } else {
    project_heads(layer, in, tokens);
    scale_queries(tokens);
    stage.attend(layer, q_, k_, v_, attended_);
    if (!w.gate.empty()) {
      gate_.resize(attended_.size());
      ops_.linear(in, w.gate.matrix, w.gate.bias_or_none(), gate_);
      ops_.gated(Activation::kSigmoid, gate_, attended_, attended_);
    }
  }
  ops_.linear(heads, w.o.matrix, w.o.bias_or_none(), block_);
}

void Forward::mix(const Block& block, std::span<const float> in, const ForwardTokens& tokens, AttentionStage& stage) {
  if (block.attends) return attention(LayerId(block.number), in, tokens, stage);
  states_.run(model_.weights.layers[block.index].state, in, stage.states(block.number), block_);
}

void Forward::mlp(std::uint32_t block, std::span<const float> in, std::span<float> out) {
  const ModelShape& shape = model_.config.shape;
  if (shape.is_expert_layer(block)) {
    experts_.run(block, in, out);
  } else {
    run_mlp(ops_, model_.weights.layers[block].mlp, model_.config.options.activation, in, shape.ffn, gate_, up_, out);
  }
}

void Forward::add(std::span<const float> block) { ops_.add_residual(x_, block, model_.config.options.residual_scale); }

void Forward::block(const Block& block, const ForwardTokens& tokens, AttentionStage& stage) {
  const LayerWeights& w = model_.weights.layers[block.index];
  switch (model_.config.options.residual) {
    case ResidualOrder::kSequential:
      mix(block, normed(x_, w.attention_norm), tokens, stage);
      norm_in_place(block_, w.attention_out_norm);
      add(block_);
      if (!model_.config.has_mlp(block.index)) return;
      mlp(block.index, normed(x_, w.mlp_norm), block_);
      norm_in_place(block_, w.mlp_out_norm);
      add(block_);
      break;
    case ResidualOrder::kParallel: {
      const std::span<const float> in = normed(x_, w.attention_norm);
      mix(block, in, tokens, stage);
      mlp(block.index, w.mlp_norm.empty() ? in : normed(x_, w.mlp_norm), parallel_);
      add(block_);
      add(parallel_);
      break;
    }
    case ResidualOrder::kNormAfterAdd:
      mix(block, x_, tokens, stage);
      add(block_);
      norm_in_place(x_, w.attention_norm);
      mlp(block.index, x_, block_);
      add(block_);
      norm_in_place(x_, w.mlp_norm);
      break;
  }
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
  const Weight& bias = model_.weights.head_bias;
  ops_.linear(in, model_.head(), bias.empty() ? nullptr : &bias, logits);
  ops_.cap(logits, model_.config.options.logit_scale, model_.config.options.logit_softcap);
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
  static_cast<void>(take_experts());  // those of a pass that failed before its end
  resize(count);
  use_long_ = use_long_rotary(model_.config.options, tokens.prompts);
  embed(tokens);
  std::uint32_t attended = 0;
  for (std::uint32_t i = 0; i < shape.mixers(); ++i) {
    const bool attends = model_.config.attends(i);
    block({i, attends, attends ? attended++ : i - attended}, tokens, stage);
  }
  if (all) {
    all_logits(count, logits, all);
  } else if (rows > 0) {
    head(head_input(rows), logits);
  }
}

}  // namespace kvroof
