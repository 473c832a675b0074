#include "kernels/engine/mamba2_weights.hpp"

namespace kvroof {
namespace {

// x, B and C, as the convolution's channels are stored, become C, B and x.
std::vector<RowRun> channel_runs(const StateLayers& s) {
  return {{2 * s.keys(), s.values()}, {s.keys(), s.keys()}, {0, s.keys()}};
}

}  // namespace

void bind_mamba2(WeightBinder& binder, const ModelShape& shape, const std::string& mixer, StateWeights& w) {
  const StateLayers& s = shape.state;
  const std::size_t channels = convolved_channels(s, shape.hidden), steps = channels + s.values();
  std::vector<RowRun> in = {{channels, s.values()}};
  for (const RowRun& run : channel_runs(s)) in.push_back(run);
  in.push_back({steps, s.heads});
  binder.matrix_runs(mixer + "in_proj.weight", w.in.matrix, steps + s.heads, shape.hidden, in);
  binder.taps(mixer + "conv1d.weight", w.taps, s.convolution, channel_runs(s));
  binder.vector_runs(mixer + "conv1d.bias", w.taps_bias, channels, channel_runs(s));
  binder.exact_vector(mixer + "A_log", w.decay, s.heads);
  binder.exact_vector(mixer + "dt_bias", w.rate_bias, s.heads);
  binder.exact_vector(mixer + "D", w.skip, s.heads);
  binder.norm(mixer + "norm", w.norm, s.values(), false);
  binder.linear(mixer + "out_proj", w.out, shape.hidden, s.values(), false);
}

}  // namespace kvroof
