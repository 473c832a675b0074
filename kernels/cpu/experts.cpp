#include "kernels/cpu/experts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sim/attention/attention.hpp"

namespace kvroof {
namespace {

const Weight* bias_of(const Linear& linear) { return linear.bias.empty() ? nullptr : &linear.bias; }

// The groups whose experts may be chosen: those with the best single expert.
std::vector<bool> open_groups(std::span<const float> scores, const RoutingRule& rule) {
  const std::size_t size = scores.size() / rule.groups;
  std::vector<std::uint32_t> order(rule.groups);
  std::iota(order.begin(), order.end(), 0U);
  const auto best = [&](std::uint32_t g) {
    return *std::max_element(scores.begin() + static_cast<std::ptrdiff_t>(g * size),
                             scores.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
  };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return best(a) > best(b); });
  std::vector<bool> open(rule.groups, false);
  for (std::size_t i = 0; i < std::min<std::size_t>(rule.top_groups, order.size()); ++i) open[order[i]] = true;
  return open;
}

}  // namespace

std::vector<Route> route(std::span<const float> router_logits, std::uint32_t experts_per_token,
                         const RoutingRule& rule) {
  std::vector<float> scores(router_logits.size());
  softmax(router_logits, scores);
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  if (rule.groups > 1) {
    const std::vector<bool> open = open_groups(scores, rule);
    const std::size_t size = scores.size() / rule.groups;
    std::erase_if(order, [&](std::uint32_t e) { return !open[e / size]; });
  }
  const std::size_t count = std::min<std::size_t>(experts_per_token, order.size());
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  std::vector<Route> routes;
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    routes.push_back({order[i], scores[order[i]]});
    sum += scores[order[i]];
  }
  const float factor = rule.scale / (rule.renormalise ? sum : 1.0F);
  for (Route& r : routes) r.weight *= factor;
  return routes;
}

void run_mlp(Ops& ops, const Mlp& mlp, Activation activation, std::span<const float> in, std::size_t ffn,
             std::vector<float>& gate, std::vector<float>& up, std::span<float> out) {
  const std::size_t tokens = in.size() / mlp.up.matrix.cols;
  up.resize(tokens * ffn);
  if (mlp.gate.empty()) {
    ops.linear(in, mlp.up.matrix, bias_of(mlp.up), up);
    ops.activate(activation, up);
    ops.linear(up, mlp.down.matrix, bias_of(mlp.down), out);
    return;
  }
  gate.resize(tokens * ffn);
  ops.linear(in, mlp.gate.matrix, bias_of(mlp.gate), gate);
  ops.linear(in, mlp.up.matrix, bias_of(mlp.up), up);
  ops.gated(activation, gate, up, gate);
  ops.linear(gate, mlp.down.matrix, bias_of(mlp.down), out);
}

void ExpertLayer::run(std::uint32_t layer, std::span<const float> in, std::span<float> out) {
  const ModelShape& shape = model_.config.shape;
  const ExpertWeights& experts = model_.weights.layers[layer].experts;
  const std::size_t hidden = shape.hidden;
  const std::size_t tokens = in.size() / hidden;
  router_.resize(tokens * shape.experts);
  ops_.linear(in, experts.router, nullptr, router_);
  std::vector<std::vector<std::pair<std::uint32_t, float>>> chosen(shape.experts);  // of each expert: token, weight
  for (std::uint32_t t = 0; t < tokens; ++t) {
    const auto logits = std::span<const float>(router_).subspan(t * std::size_t{shape.experts}, shape.experts);
    for (const Route& r : route(logits, shape.experts_per_token, model_.config.options.routing)) {
      chosen[r.expert].emplace_back(t, r.weight);
    }
  }
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::uint32_t e = 0; e < shape.experts; ++e) {
    if (chosen[e].empty()) continue;
    rows_.clear();
    factors_.clear();
    gathered_.resize(chosen[e].size() * hidden);
    for (std::size_t i = 0; i < chosen[e].size(); ++i) {
      rows_.push_back(chosen[e][i].first);
      factors_.push_back(chosen[e][i].second);
      const auto row = in.subspan(rows_.back() * hidden, hidden);
      std::copy(row.begin(), row.end(), gathered_.begin() + static_cast<std::ptrdiff_t>(i * hidden));
    }
    result_.resize(gathered_.size());
    pass(experts.routed[e], shape.expert_ffn, gathered_, result_);
    ops_.add_scaled_rows(out, hidden, rows_, factors_, result_);
  }
  if (shape.shared_expert_ffn > 0) add_shared(experts, in, out);
}

void ExpertLayer::pass(const Mlp& mlp, std::size_t ffn, std::span<const float> in, std::span<float> out) {
  run_mlp(ops_, mlp, model_.config.options.activation, in, ffn, gate_, up_, out);
}

void ExpertLayer::add_shared(const ExpertWeights& experts, std::span<const float> in, std::span<float> out) {
  const std::size_t hidden = model_.config.shape.hidden;
  const std::size_t tokens = in.size() / hidden;
  result_.resize(in.size());
  pass(experts.shared, model_.config.shape.shared_expert_ffn, in, result_);
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
