#include "kernels/cpu/experts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sim/attention/attention.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

// The index of the largest value that is still open, of equal ones the lowest; closes it.
std::size_t take_best(std::span<const float> values, std::span<std::uint8_t> open) {
  std::size_t best = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (open[i] != 0 && (best == values.size() || values[i] > values[best])) best = i;
  }
  check(best < values.size(), "routing: enough experts compete");
  open[best] = 0;
  return best;
}

}  // namespace

// Leaves open the experts of the groups with the best experts.
void Router::close_groups(const RoutingRule& rule) {
  const std::size_t size = ranks_.size() / rule.groups;
  group_ranks_.resize(rule.groups);
  for (std::size_t g = 0; g < rule.groups; ++g) {
    float best = -std::numeric_limits<float>::infinity();
    float second = best;
    for (std::size_t i = g * size; i < (g + 1) * size; ++i) {
      second = std::max(second, std::min(best, ranks_[i]));
      best = std::max(best, ranks_[i]);
    }
    group_ranks_[g] = rule.group_best == 2 ? best + second : best;
  }
  open_groups_.assign(rule.groups, 1);
  open_.assign(ranks_.size(), 0);
  for (std::uint32_t i = 0; i < rule.top_groups; ++i) {
    std::fill_n(open_.begin() + static_cast<std::ptrdiff_t>(take_best(group_ranks_, open_groups_) * size), size,
                std::uint8_t{1});
  }
}

void Router::score(std::span<const float> logits, const RoutingRule& rule) {
  scores_.assign(logits.begin(), logits.end());
  if (rule.scores == RouterScores::kSparseMixer) return;
  if (rule.scores == RouterScores::kSoftmax) {
    softmax(logits, scores_);
    return;
  }
  for (std::size_t i = 0; i < logits.size(); ++i) scores_[i] = 1.0F / (1.0F + std::exp(-logits[i]));
}

void Router::route(std::span<const float> logits, const RoutingRule& rule, std::span<Route> chosen,
                   std::span<const float> bias) {
  score(logits, rule);
  ranks_ = scores_;
  for (std::size_t i = 0; i < bias.size(); ++i) ranks_[i] += bias[i];
  if (rule.groups > 1) {
    close_groups(rule);
  } else {
    open_.assign(ranks_.size(), 1);
  }
  for (Route& route : chosen) route.expert = static_cast<std::uint32_t>(take_best(ranks_, open_));
  weigh_chosen(rule, chosen);
}

void Router::weigh(std::span<const float> logits, const RoutingRule& rule, std::span<Route> chosen) {
  score(logits, rule);
  weigh_chosen(rule, chosen);
}

void Router::mix_chosen(const RoutingRule& rule, std::span<Route> chosen) {
  open_.assign(scores_.size(), 1);
  for (Route& route : chosen) {
    open_[route.expert] = 0;
    const float best = scores_[route.expert];
    float total = 1;
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      const bool far = best - scores_[i] > rule.margin * std::max(std::fabs(scores_[i]), best);
      if (open_[i] != 0 && !far) total += std::exp(scores_[i] - best);
    }
    route.weight = rule.scale / total;
  }
}

void Router::weigh_chosen(const RoutingRule& rule, std::span<Route> chosen) {
  if (rule.scores == RouterScores::kSparseMixer) return mix_chosen(rule, chosen);
  float sum = 0;
  for (Route& route : chosen) {
    route.weight = scores_[route.expert];
    sum += route.weight;
  }
  const float factor = rule.scale / (rule.renormalise ? sum : 1.0F);
  for (Route& route : chosen) route.weight *= factor;
}

void run_mlp(Ops& ops, const Mlp& mlp, Activation activation, std::span<const float> in, std::size_t ffn,
             std::vector<float>& gate, std::vector<float>& up, std::span<float> out) {
  const std::size_t tokens = in.size() / mlp.up.matrix.cols;
  up.resize(tokens * ffn);
  if (mlp.gate.empty()) {
    ops.linear(in, mlp.up.matrix, mlp.up.bias_or_none(), up);
    ops.activate(activation, up);
    ops.linear(up, mlp.down.matrix, mlp.down.bias_or_none(), out);
    return;
  }
  gate.resize(tokens * ffn);
  ops.linear(in, mlp.gate.matrix, mlp.gate.bias_or_none(), gate);
  ops.linear(in, mlp.up.matrix, mlp.up.bias_or_none(), up);
  ops.gated(activation, gate, up, gate);
  ops.linear(gate, mlp.down.matrix, mlp.down.bias_or_none(), out);
}

void ExpertLayer::choose(std::uint32_t layer, std::span<const float> in) {
  const ModelShape& shape = model_.config.shape;
  const std::size_t tokens = in.size() / shape.hidden;
  const std::size_t count = shape.experts_per_token;
  router_logits_.resize(tokens * shape.experts);
  const ExpertWeights& experts = model_.weights.layers[layer].experts;
  ops_.linear(in, experts.router.matrix, experts.router.bias_or_none(), router_logits_);
  ops_.counters().add(Cause::kWeights, experts.router_bias.bytes());
  routes_.resize(tokens * count);
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto logits = std::span<const float>(router_logits_).subspan(t * shape.experts, shape.experts);
    const std::span<Route> chosen = std::span(routes_).subspan(t * count, count);
    router_.route(logits, model_.config.options.routing, chosen, router_bias_of(experts));
    if (reviewer_ != nullptr) reviewer_->review(layer, t, logits, chosen);
  }
}

// A counting sort: tokens of an expert stay in ascending order.
void ExpertLayer::group_by_expert() {
  const ModelShape& shape = model_.config.shape;
  starts_.assign(shape.experts + 2, 0);
  for (const Route& route : routes_) ++starts_[route.expert + 2];
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  rows_.resize(routes_.size());
  factors_.resize(routes_.size());
  for (std::size_t i = 0; i < routes_.size(); ++i) {
    const std::size_t at = starts_[routes_[i].expert + 1]++;
    rows_[at] = static_cast<std::uint32_t>(i / shape.experts_per_token);
    factors_[at] = routes_[i].weight;
  }
}

void ExpertLayer::run(std::uint32_t layer, std::span<const float> in, std::span<float> out) {
  const ModelShape& shape = model_.config.shape;
  const ExpertWeights& experts = model_.weights.layers[layer].experts;
  const std::size_t hidden = shape.hidden;
  choose(layer, in);
  group_by_expert();
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::uint32_t e = 0; e < shape.experts; ++e) {
    const std::size_t count = starts_[e + 1] - starts_[e];
    if (count == 0) continue;
    const std::span<const std::uint32_t> rows = std::span(rows_).subspan(starts_[e], count);
    gathered_.resize(count * hidden);
    for (std::size_t i = 0; i < count; ++i) {
      std::copy_n(in.data() + rows[i] * hidden, hidden, gathered_.data() + i * hidden);
    }
    pass(experts.routed[e], shape.expert_ffn, gathered_);
    ++passed_;
    ops_.add_scaled_rows(out, hidden, rows, std::span(factors_).subspan(starts_[e], count), result_);
  }
  if (shape.shared_expert_ffn > 0) add_shared(experts, in, out);
}

void ExpertLayer::pass(const Mlp& mlp, std::size_t ffn, std::span<const float> in) {
  result_.resize(in.size());
  run_mlp(ops_, mlp, model_.config.options.activation, in, ffn, gate_, up_, result_);
}

void ExpertLayer::add_shared(const ExpertWeights& experts, std::span<const float> in, std::span<float> out) {
  const std::size_t hidden = model_.config.shape.hidden;
  const std::size_t tokens = in.size() / hidden;
  pass(experts.shared, model_.config.shape.shared_expert_ffn, in);
  factors_.assign(tokens, 1.0F);
  if (!experts.shared_gate.empty()) {
    ops_.linear(in, experts.shared_gate, nullptr, factors_);
    for (float& f : factors_) f = 1.0F / (1.0F + std::exp(-f));
  }
  rows_.resize(tokens);
  std::iota(rows_.begin(), rows_.end(), 0U);
  ops_.add_scaled_rows(out, hidden, rows_, factors_, result_);
}

}  // namespace kvroof
