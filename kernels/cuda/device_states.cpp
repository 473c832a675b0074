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

// Rows of a token: what is projected, what is convolved, what is read, rates.
struct StateRow {
  explicit StateRow(const ModelShape& shape)
      : projected(is_short(shape.state) ? 3 * std::size_t{shape.hidden}
                                        : 2 * (shape.state.keys() + shape.state.values())),
        convolved(convolved_channels(shape.state, shape.hidden)),
        read(shape.state.values()),
        rates(2 * std::size_t{shape.state.heads}) {}

  std::size_t projected, convolved, read, rates;
};

}  // namespace

std::size_t state_row_floats(const ModelShape& shape) {
  if (shape.state.layers == 0) return 0;
  const StateRow row(shape);
  return row.projected + row.convolved + row.read + row.rates;
}

std::uint64_t held_state_floats(const ModelShape& shape) {
  return shape.state.layers == 0 ? 0 : shape.state.layers * layer_floats(shape);
}

void DeviceForward::gate_heads(const GateArguments& a) {
  const std::uint64_t values = std::uint64_t{a.tokens} * a.heads * a.dim;
  DeclaredWork work = moved(Cause::kWeights, a.scale != nullptr ? std::uint64_t{2} * a.dim : 0);
  work.bytes.add(Cause::kActivations, 3 * values * sizeof(float));
  const Launch launch(launches_, {"gate", layer_, Cause::kActivations, work});
  run_gate_heads(stream_, model_.type(), a);
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

void DeviceForward::apply_delta_rule(const DeviceState& w, StatePlaces states, const float* x, const float* rates,
                                     float* out) {
  const ModelShape& shape = model_.host().config.shape;
  const StateLayers& s = shape.state;
  const std::uint64_t passes = states.prompt ? 1 : 2 * std::uint64_t{tokens_};  // a prompt's are only written
  DeclaredWork work = moved(Cause::kActivations, passes * state_elements(s) * sizeof(float));
  work.bytes.add(Cause::kWeights, std::uint64_t{2} * s.heads * sizeof(float));
  work.flops = tokens_ * (state_operations(s, shape.hidden) - 2 * convolved_channels(s, shape.hidden) * s.convolution);
  const Launch launch(launches_, {"delta_rule", layer_, Cause::kActivations, work});
  run_delta_rule(stream_, {states, x, rates, w.decay, w.rate_bias, tokens_, s.heads, s.key_heads, s.key_dim,
                           s.value_dim, out});
}

const float* DeviceForward::pass_states(std::uint32_t number, const DeviceState& w, const float* x,
                                        const DeviceNorm& norm) {
  const ModelShape& shape = model_.host().config.shape;
  const StateLayers& s = shape.state;
  const StateRow row(shape);
  float* const projected = projections_.at<float>();
  float* const convolved = projected + tokens_ * row.projected;
  float* const read = convolved + tokens_ * row.convolved;
  float* const rates = read + tokens_ * row.read;
  StatePlaces states = states_;
  states.at = number * layer_floats(shape);
  linear(is_short(s) ? "state_in" : "state_qkvz", x, norm, w.in, projected, false);
  if (!is_short(s)) {
    LinearArguments a = with_norm(x, norm);
    a.w = w.rates.matrix;
    a.out = rates;
    launch_linear("state_rates", a, false);
  }
  {
    const std::uint64_t rows = row.projected + row.convolved - (is_short(s) ? 0 : row.read);  // without the gate's
    const std::uint64_t passes = states.prompt ? 1 : 2 * std::uint64_t{tokens_};
    DeclaredWork work = moved(Cause::kWeights, std::uint64_t{2} * row.convolved * s.convolution);
    work.bytes.add(Cause::kActivations, (tokens_ * rows + passes * convolution_floats(shape)) * sizeof(float));
    const Launch launch(launches_, {"convolve", layer_, Cause::kActivations, work});
    run_convolve(stream_, model_.type(),
                 {states, projected, static_cast<std::uint32_t>(row.projected), tokens_,
                  static_cast<std::uint32_t>(row.convolved), s.convolution, w.taps, is_short(s), convolved});
  }
  if (is_short(s)) return convolved;
  states.at += convolution_floats(shape);
  apply_delta_rule(w, states, convolved, rates, read);
  gate_heads({read, projected + row.convolved, static_cast<std::uint32_t>(row.projected), tokens_, s.heads,
              s.value_dim, ActivationMode::kSilu, w.norm.scale, model_.host().config.options.norm_eps});
  return read;
}

}  // namespace kvroof::cuda
