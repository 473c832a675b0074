// The part of DeviceForward that runs mixtures of experts. Which expert a token takes is known on the device alone.
#include <algorithm>

#include "kernels/cuda/device_forward.hpp"
#include "sim/core/error.hpp"

namespace kvroof::cuda {
namespace {

std::uint32_t most_tiles(std::uint32_t pairs, std::uint32_t experts) {
  return pairs / tile_pairs(pairs) + std::min(pairs, experts);
}

RouteScores scores_of(RouterScores scores) {
  switch (scores) {
    case RouterScores::kSigmoid: return RouteScores::kSigmoid;
    case RouterScores::kSoftmax: return RouteScores::kSoftmax;
    case RouterScores::kSparseMixer: return RouteScores::kSparseMixer;
  }
  check(false, "kernels know every router");
  return RouteScores::kSoftmax;
}

// Of gate, up and down of one expert, with their biases.
std::uint64_t expert_bytes(const DeviceMlp& w) {
  std::uint64_t elements = 0;
  for (const DeviceLinear* linear : {&w.gate, &w.up, &w.down}) {
    elements += linear->matrix.rows * (std::uint64_t{linear->matrix.cols} + (linear->bias != nullptr ? 1 : 0));
  }
  return 2 * elements;
}

}  // namespace

// Pairs' experts, weights and order; tiles; their number; the experts passed in each layer.
struct DeviceForward::RouteTables {
  RouteTables(const DeviceBuffer& buffer, std::uint32_t pairs, std::uint32_t experts, std::uint32_t layer)
      : chosen(buffer.at<std::uint32_t>()),
        weights(reinterpret_cast<float*>(chosen + pairs)),
        order(chosen + 2 * std::size_t{pairs}),
        tiles(reinterpret_cast<ExpertTile*>(order + pairs)),
        tile_count(reinterpret_cast<std::uint32_t*>(tiles + most_tiles(pairs, experts))),
        passed(tile_count + 1 + layer) {}
  static std::size_t bytes(std::uint32_t pairs, std::uint32_t experts, std::uint32_t layers) {
    return (3 * std::size_t{pairs} + 1 + layers) * sizeof(std::uint32_t) +
           most_tiles(pairs, experts) * sizeof(ExpertTile);
  }

  std::uint32_t* chosen;
  float* weights;
  std::uint32_t* order;
  ExpertTile* tiles;
  std::uint32_t* tile_count;
  std::uint32_t* passed;
};

void DeviceForward::reserve_experts() {
  const ModelShape& shape = model_.host().config.shape;
  const std::uint32_t pairs = tokens_ * shape.experts_per_token;
  routes_.reserve(RouteTables::bytes(pairs, shape.experts, shape.mixers()));
  router_logits_.reserve(std::size_t{tokens_} * shape.experts * sizeof(float));
  expert_activated_.reserve(std::size_t{pairs} * shape.expert_ffn * sizeof(float));
  expert_out_.reserve(std::size_t{pairs} * shape.hidden * sizeof(float));
  shared_factors_.reserve(tokens_ * sizeof(float));
}

RoutedRows DeviceForward::route(const DeviceExperts& w, const float* x, const DeviceNorm& norm, float factor) {
  const ModelConfig& config = model_.host().config;
  const ModelShape& shape = config.shape;
  const std::uint32_t pairs = tokens_ * shape.experts_per_token;
  const RouteTables tables(routes_, pairs, shape.experts, static_cast<std::uint32_t>(layer_));
  linear("router", x, norm, w.router, router_logits_.at<float>(), false);
  {
    const std::uint64_t biases = w.router_bias != nullptr ? shape.experts * sizeof(float) : 0;
    const Launch launch(launches_, {"route", layer_, Cause::kActivations, moved(Cause::kWeights, biases)});
    const RoutingRule& rule = config.options.routing;
    run_choose_experts(stream_, {router_logits_.at<float>(), tokens_, shape.experts, shape.experts_per_token,
                                 scores_of(rule.scores), w.router_bias, rule.groups, rule.top_groups,
                                 rule.group_best, rule.renormalise, factor * rule.scale, tables.chosen,
                                 tables.weights, rule.margin});
  }
  RoutedRows routed{tables.chosen, shape.experts_per_token, tables.order, tables.tiles, tables.tile_count,
                    most_tiles(pairs, shape.experts)};
  if (tokens_ == 1 && pairs <= kFewPairs) return routed;
  const Launch launch(launches_, {"route", layer_, Cause::kActivations, {}});
  run_group_pairs(stream_, {tables.chosen, pairs, shape.experts, tile_pairs(pairs), tables.order, tables.tiles,
                            tables.tile_count, tables.passed});
  return routed;
}

void DeviceForward::launch_routed(const char* operation, LinearArguments& a) {
  const std::uint64_t elements = std::uint64_t{a.w.rows} * a.w.cols + std::uint64_t{a.up.rows} * a.up.cols;
  const std::uint64_t biases = std::uint64_t{a.w.rows} * ((a.bias != nullptr ? 1 : 0) + (a.up_bias != nullptr ? 1 : 0));
  // One token takes as many experts as it is let; how many several tokens take is read after the pass.
  DeclaredWork work = moved(Cause::kWeights, tokens_ == 1 ? 2 * (elements + biases) * a.tokens : 0);
  work.bytes.add(Cause::kActivations, sizeof(float) * a.tokens * (std::uint64_t{a.w.cols} + a.w.rows));
  work.flops = 2 * elements * a.tokens;
  const Launch launch(launches_, {operation, layer_, Cause::kWeights, work});
  run_linear(stream_, model_.type(), a);
}

// out (+)= the weighted sum of what the experts make of norm(x), and of what the shared ones do.
void DeviceForward::pass_experts(const DeviceExperts& w, const float* x, const DeviceNorm& norm, float* out,
                                 bool add) {
  const ModelShape& shape = model_.host().config.shape;
  const float factor = add ? model_.host().config.options.residual_scale : 1.0F;
  const RoutedRows routed = route(w, x, norm, factor);
  const RouteTables tables(routes_, tokens_ * shape.experts_per_token, shape.experts, 0);
  LinearArguments a = mlp_arguments(w.routed, x, norm, expert_activated_.at<float>());
  a.tokens = tokens_ * shape.experts_per_token;
  a.routed = routed;
  launch_routed("expert_up", a);
  LinearArguments down;
  down.x = expert_activated_.at<float>();
  down.tokens = a.tokens;
  down.w = w.routed.down.matrix;
  down.bias = w.routed.down.bias;
  down.token_factors = tables.weights;
  down.routed = routed;
  down.routed.share = 1;
  down.out = expert_out_.at<float>();
  launch_routed("expert_down", down);
  // The shared experts read x before the sum may change it.
  const bool shared = w.shared.up.matrix.rows > 0;
  if (shared) mlp(w.shared, x, norm, activated_.at<float>(), false);
  if (shared && w.shared_gate.rows > 0) {
    LinearArguments gate = with_norm(x, norm);
    gate.w = w.shared_gate;
    gate.activation = ActivationMode::kSigmoid;
    gate.out = shared_factors_.at<float>();
    launch_linear("shared_gate", gate, false);
  }
  {
    DeclaredWork work = moved(Cause::kActivations, sizeof(float) * tokens_ * shape.hidden *
                                                       (std::uint64_t{shape.experts_per_token} + (add ? 2 : 1)));
    const Launch launch(launches_, {"expert_sum", layer_, Cause::kActivations, work});
    run_add_pairs(stream_, {expert_out_.at<float>(), tokens_, shape.experts_per_token, shape.hidden, add, out});
  }
  if (!shared) return;
  LinearArguments last;
  last.x = activated_.at<float>();
  last.tokens = tokens_;
  last.w = w.shared.down.matrix;
  last.bias = w.shared.down.bias;
  last.token_factors = w.shared_gate.rows > 0 ? shared_factors_.at<float>() : nullptr;
  last.add = true;
  last.factor = factor;
  last.out = out;
  launch_linear("shared_down", last);
}

DeviceForward::ExpertPasses DeviceForward::read_expert_passes() {
  const ModelShape& shape = model_.host().config.shape;
  if (shape.experts == 0) return {};
  if (tokens_ == 1) return {shape.expert_layers() * shape.experts_per_token, 0};
  const RouteTables tables(routes_, tokens_ * shape.experts_per_token, shape.experts, shape.dense_layers);
  std::vector<std::uint32_t> passed(shape.mixers() - shape.dense_layers);
  copy_to_host(stream_, std::as_writable_bytes(std::span(passed)), reinterpret_cast<std::byte*>(tables.passed));
  ExpertPasses out;
  for (std::uint32_t i = 0; i < passed.size(); ++i) {
    const std::uint32_t block = shape.dense_layers + i;
    if (!model_.host().config.has_mlp(block)) continue;
    out.experts += passed[i];
    out.undeclared_bytes += passed[i] * expert_bytes(model_.layers[block].experts.routed);
  }
  return out;
}

}  // namespace kvroof::cuda
