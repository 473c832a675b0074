// The part of DeviceForward that runs layers which hold a state in place of a cache, as kernels/cpu/state_layer.hpp
// says, and gates of what layers make.
#include <algorithm>

#include "kernels/cuda/device_forward.hpp"

namespace kvroof::cuda {
namespace {

// Floats that one layer holds of a sequence: the rows of its convolution, then its matrices.
std::uint64_t convolution_floats(const ModelShape& shape) {
  return convolved_channels(shape.state, shape.hidden) * (shape.state.convolution - 1);
}
std::uint64_t layer_floats(const ModelShape& shape) {
  return convolution_floats(shape) + state_elements(shape.state);
}

bool is_short(const StateLayers& s) { return s.kind == StateKind::kShortConvolution; }

}  // namespace

// Rows of a token: what is projected, what is convolved, what is read, rates that have a product of their own.
struct StateRow {
  explicit StateRow(const ModelShape& shape)
      : convolved(convolved_channels(shape.state, shape.hidden)), read(shape.state.values()) {
    const std::size_t heads = shape.state.heads;
    switch (shape.state.kind) {
      case StateKind::kShortConvolution: projected = 3 * std::size_t{shape.hidden}; break;
      case StateKind::kMamba2: projected = convolved + read + heads; break;
      default: projected = convolved + read, rates = 2 * heads; break;
    }
  }

  std::size_t projected = 0, convolved, read, rates = 0;
};

std::size_t state_row_floats(const ModelShape& shape) {
  if (shape.state.layers == 0) return 0;
  const StateRow row(shape);
  return row.projected + row.convolved + row.read + row.rates;
}

std::uint64_t held_state_floats(const ModelShape& shape) {
  return shape.state.layers == 0 ? 0 : shape.state.layers * layer_floats(shape);
}

void DeviceForward::gate_heads(const GateArguments& a, bool by_group) {
  const std::uint64_t values = std::uint64_t{a.tokens} * a.heads * a.dim;
  const std::uint64_t scales = a.scale == nullptr ? 0 : std::uint64_t{by_group ? a.heads : 1} * a.dim;
  DeclaredWork work = moved(Cause::kWeights, 2 * scales);
  work.bytes.add(Cause::kActivations, 3 * values * sizeof(float));
  const Launch launch(launches_, {"gate", layer_, Cause::kActivations, work});
  by_group ? run_gate_groups(stream_, model_.type(), a) : run_gate_heads(stream_, model_.type(), a);
}

void DeviceForward::gate_attended(const DeviceLinear& gate, const float* x, const DeviceNorm& norm) {
  const ModelShape& shape = model_.host().config.shape;
  LinearArguments a = with_norm(x, norm);
  a.w = gate.matrix;
  a.bias = gate.bias;
  a.out = gates_.at<float>();
  launch_linear("attention_gate", a, false);
  gate_heads({attended_.at<float>(), gates_.at<float>(), gate.matrix.rows, tokens_, shape.heads, shape.v_head_dim,
              ActivationMode::kSigmoid});
}

void DeviceForward::convolve(const DeviceState& w, StatePlaces states, const StateRow& row, const float* projected,
                             float* out) {
  const ModelShape& shape = model_.host().config.shape;
  const StateLayers& s = shape.state;
  const auto channels = static_cast<std::uint32_t>(row.convolved);
  const std::uint64_t rows = is_short(s) ? row.projected + row.convolved : 2 * row.convolved;
  const std::uint64_t passes = states.prompt ? 1 : 2 * std::uint64_t{tokens_};  // a prompt's are only written
  const std::uint64_t of_channel = s.convolution + (w.taps_bias != nullptr ? 1 : 0);
  DeclaredWork work = moved(Cause::kWeights, std::uint64_t{2} * row.convolved * of_channel);
  work.bytes.add(Cause::kActivations, (tokens_ * rows + passes * convolution_floats(shape)) * sizeof(float));
  const Launch launch(launches_, {"convolve", layer_, Cause::kActivations, work});
  run_convolve(stream_, model_.type(),
               {states, projected, static_cast<std::uint32_t>(row.projected), tokens_, channels, s.convolution, w.taps,
                w.taps_bias, is_short(s), out});
}

void DeviceForward::apply_state_rule(const DeviceState& w, const StateRuleArguments& a) {
  const ModelShape& shape = model_.host().config.shape;
  const StateLayers& s = shape.state;
  const std::uint64_t passes = a.states.prompt ? 1 : 2 * std::uint64_t{tokens_};
  DeclaredWork work = moved(Cause::kActivations, passes * state_elements(s) * sizeof(float));
  work.bytes.add(Cause::kWeights, std::uint64_t{w.skip != nullptr ? 3U : 2U} * s.heads * sizeof(float));
  work.flops = tokens_ * (state_operations(s, shape.hidden) - 2 * convolved_channels(s, shape.hidden) * s.convolution);
  const Launch launch(launches_, {"state_rule", layer_, Cause::kActivations, work});
  run_state_rule(stream_, a);
}

const float* DeviceForward::pass_states(std::uint32_t number, const DeviceState& w, const float* x,
                                        const DeviceNorm& norm) {
  const ModelShape& shape = model_.host().config.shape;
  const StateLayers& s = shape.state;
  const StateRow row(shape);
  // What the last product takes lies first: its loads are of 16 bytes, and rows of steps may have any width.
  float* const read = projections_.at<float>();
  float* const convolved = read + tokens_ * row.read;
  float* const projected = convolved + tokens_ * row.convolved;
  float* const own_rates = projected + tokens_ * row.projected;
  StatePlaces states = states_;
  states.at = number * layer_floats(shape);
  linear("state_in", x, norm, w.in, projected, false);
  if (row.rates > 0) {
    LinearArguments a = with_norm(x, norm);
    a.w = w.rates.matrix;
    a.out = own_rates;
    launch_linear("state_rates", a, false);
  }
  convolve(w, states, row, projected, convolved);
  if (is_short(s)) return convolved;
  states.at += convolution_floats(shape);
  const float* const rates = row.rates > 0 ? own_rates : projected + row.convolved + row.read;
  const auto rates_row = static_cast<std::uint32_t>(row.rates > 0 ? row.rates : row.projected);
  apply_state_rule(w, {states, convolved, rates, rates_row, w.decay, w.rate_bias, w.skip, tokens_, s.heads,
                       s.key_heads, s.key_dim, s.value_dim, read});
  const bool by_group = s.kind == StateKind::kMamba2;
  const std::uint32_t gated = by_group ? s.key_heads : s.heads;
  gate_heads({read, projected + row.convolved, static_cast<std::uint32_t>(row.projected), tokens_, gated,
              static_cast<std::uint32_t>(s.values() / gated), ActivationMode::kSilu, w.norm.scale,
              model_.host().config.options.norm_eps},
             by_group);
  return read;
}

}  // namespace kvroof::cuda
