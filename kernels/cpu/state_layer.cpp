#include "kernels/cpu/state_layer.hpp"

#include <algorithm>
#include <cmath>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kChannelsOfTask = 512;
constexpr float kKeyEps = 1e-6F;  // of the lengths of q and k, which no key of a configuration tells

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

// x / |x| · factor.
void scale_to(std::span<const float> x, float factor, std::span<float> out) {
  float squares = 0;
  for (const float value : x) squares += value * value;
  const float scale = factor / std::sqrt(squares + kKeyEps);
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale;
}

// [channels, convolution] → [convolution, channels].
void transpose_taps(const Weight& taps, std::vector<float>& out) {
  std::vector<float> floats(taps.rows * taps.cols);
  convert_to_float(taps.type, taps.view().row(0), floats);
  out.resize(floats.size());
  for (std::size_t c = 0; c < taps.rows; ++c) {
    for (std::size_t j = 0; j < taps.cols; ++j) out[j * taps.rows + c] = floats[c * taps.cols + j];
  }
}

float float_at(const Weight& exact, std::size_t i) { return reinterpret_cast<const float*>(exact.data.data())[i]; }

std::vector<float> floats_of(const Weight& vector) {
  std::vector<float> out(vector.cols);
  convert_to_float(vector.type, vector.view().row(0), out);
  return out;
}

bool is_delta(const StateLayers& s) { return s.kind == StateKind::kGatedDelta; }

// change −= Sᵀk, of a matrix S [keys, values] that has forgotten all but `kept` of itself.
void take_known(const float* matrix, float kept, std::span<const float> k, std::span<float> change) {
  for (std::size_t d = 0; d < k.size(); ++d) {
    const float* line = matrix + d * change.size();
    for (std::size_t i = 0; i < change.size(); ++i) change[i] -= kept * k[d] * line[i];
  }
}

}  // namespace

// convolved_ = bias + Σ taps · the rows of projected_ up to the token, as long as the convolution is; then the last
// rows are held for the next token.
void StateLayer::convolve(const StateWeights& w, const StatePart& part, std::size_t stride) {
  const std::size_t channels = w.taps.rows, width = w.taps.cols, before = width - 1;
  std::vector<float>& held = part.held->rows;
  held.resize(before * channels);
  const float* x = projected_.data() + part.first * stride;
  const std::vector<float> bias = w.taps_bias.empty() ? std::vector<float>(channels) : floats_of(w.taps_bias);
  // Row i − before of the part, of which the first are held.
  const auto row = [&](std::size_t i) { return i < before ? held.data() + i * channels : x + (i - before) * stride; };
  ops_.for_each((channels + kChannelsOfTask - 1) / kChannelsOfTask, [&](std::size_t task) {
    const std::size_t from = task * kChannelsOfTask, end = std::min(channels, from + kChannelsOfTask);
    for (std::size_t t = 0; t < part.count; ++t) {
      float* out = convolved_.data() + (part.first + t) * channels;
      std::copy(bias.data() + from, bias.data() + end, out + from);
      for (std::size_t j = 0; j < width; ++j) {
        const float* in = row(t + j);
        const float* tap = taps_.data() + j * channels;
        for (std::size_t c = from; c < end; ++c) out[c] += tap[c] * in[c];
      }
    }
    for (std::size_t i = 0; i < before; ++i) {
      const float* last = row(part.count + i);
      std::copy(last + from, last + end, held.data() + i * channels + from);
    }
  });
}

// What a token makes of a head's state: S ← kept S, then S ← S + k (taken v)ᵀ, of gated delta nets S + k (taken (v −
// Sᵀk))ᵀ.
StateLayer::Rates StateLayer::rates_of(const StateWeights& w, std::size_t token, std::size_t head) const {
  const std::size_t heads = shape_.state.heads;
  const float* row = is_delta(shape_.state) ? rates_.data() + token * 2 * heads
                                            : projected_.data() + (token + 1) * w.in.matrix.rows - heads;
  const float step = softplus(row[(is_delta(shape_.state) ? heads : 0) + head] + float_at(w.rate_bias, head));
  const float kept = std::exp(-std::exp(float_at(w.decay, head)) * step);
  return {kept, is_delta(shape_.state) ? sigmoid(row[head]) : step};
}

// The state of a head passes `piece`, and out = Sᵀq + skip v. Gated delta nets take k of length 1 and q of length
// 1/√key_dim.
void StateLayer::pass_head(const StateWeights& w, const StatePart& piece, std::size_t head) {
  const StateLayers& s = shape_.state;
  const std::size_t keys = s.key_dim, values = s.value_dim, channels = w.taps.rows;
  const std::size_t key_head = head / (s.heads / s.key_heads);
  const bool delta = is_delta(s);
  const float skip = w.skip.empty() ? 0.0F : float_at(w.skip, head);
  float* matrix = piece.held->matrices.data() + head * keys * values;
  std::vector<float> q(keys), k(keys), change(values);
  for (std::size_t t = piece.first; t < piece.first + piece.count; ++t) {
    const std::span<const float> row(convolved_.data() + t * channels, channels);
    const std::span<const float> of_q = row.subspan(key_head * keys, keys);
    const std::span<const float> of_k = row.subspan(s.keys() + key_head * keys, keys);
    const std::span<const float> v = row.subspan(2 * s.keys() + head * values, values);
    const Rates rates = rates_of(w, t, head);
    std::ranges::copy(of_q, q.begin());
    std::ranges::copy(of_k, k.begin());
    std::ranges::copy(v, change.begin());
    if (delta) {
      scale_to(of_q, 1.0F / std::sqrt(static_cast<float>(keys)), q);
      scale_to(of_k, 1, k);
      take_known(matrix, rates.kept, k, change);
    }
    float* out = read_.data() + (t * s.heads + head) * values;
    for (std::size_t i = 0; i < values; ++i) {
      change[i] *= rates.taken;
      out[i] = skip * v[i];
    }
    for (std::size_t d = 0; d < keys; ++d) {
      float* line = matrix + d * values;
      for (std::size_t i = 0; i < values; ++i) {
        line[i] = rates.kept * line[i] + k[d] * change[i];
        out[i] += q[d] * line[i];
      }
    }
  }
}

// Heads of all sequences are independent; the tokens of a sequence follow each other.
void StateLayer::pass_matrices(const StateWeights& w, std::span<const StatePart> parts) {
  const std::size_t heads = shape_.state.heads;
  std::size_t longest = 0;
  for (const StatePart& part : parts) {
    longest = std::max(longest, part.count);
    part.held->matrices.resize(state_elements(shape_.state));
  }
  for (std::size_t first = 0; first < longest; first += kStateChunk) {
    ops_.for_each(parts.size() * heads, [&](std::size_t task) {
      const StatePart& part = parts[task / heads];
      if (first >= part.count) return;
      const std::size_t count = std::min<std::size_t>(kStateChunk, part.count - first);
      pass_head(w, {part.held, part.first + first, count}, task % heads);
    });
  }
}

// What heads read takes its gate: norm(x) · silu(gate), each head by itself, or of Mamba-2 norm(x · silu(gate)) over
// the heads of a group.
void StateLayer::gate_heads(const StateWeights& w, std::size_t tokens) {
  const StateLayers& s = shape_.state;
  const bool delta = is_delta(s);
  const std::size_t width = s.values() / (delta ? s.heads : s.key_heads);
  const std::size_t stride = w.in.matrix.rows, gate_at = 2 * s.keys() + s.values();
  const std::vector<float> scale = floats_of(w.norm.scale);
  ops_.for_each(tokens, [&](std::size_t t) {
    for (std::size_t first = 0; first < s.values(); first += width) {
      const std::span<float> x(read_.data() + t * s.values() + first, width);
      const float* gate = projected_.data() + t * stride + gate_at + first;
      const float* scales = scale.data() + first % scale.size();
      if (!delta) {
        for (std::size_t i = 0; i < width; ++i) x[i] *= gate[i] * sigmoid(gate[i]);
      }
      float squares = 0;
      for (const float value : x) squares += value * value;
      const float factor = 1.0F / std::sqrt(squares / static_cast<float>(width) + norm_eps_);
      for (std::size_t i = 0; i < width; ++i) x[i] *= factor * scales[i] * (delta ? gate[i] * sigmoid(gate[i]) : 1.0F);
    }
  });
}

// The convolution of LFM2 runs over the product of two thirds of what is projected, and the third is its gate.
void StateLayer::make_gated(std::size_t tokens) {
  const std::size_t hidden = shape_.hidden;
  ops_.for_each(tokens, [&](std::size_t t) {
    float* row = projected_.data() + t * 3 * hidden;
    for (std::size_t i = 0; i < hidden; ++i) row[i] *= row[2 * hidden + i];
  });
}

void StateLayer::run(const StateWeights& w, std::span<const float> in, std::span<const StatePart> parts,
                     std::span<float> out) {
  const StateLayers& s = shape_.state;
  const bool is_short = s.kind == StateKind::kShortConvolution;
  const std::size_t tokens = in.size() / shape_.hidden, channels = w.taps.rows, stride = w.in.matrix.rows;
  ByteCounters& counters = ops_.counters();
  projected_.resize(tokens * stride);
  ops_.linear(in, w.in.matrix, nullptr, projected_);
  if (is_short) make_gated(tokens);
  if (!w.rates.empty()) {
    rates_.resize(tokens * w.rates.matrix.rows);
    ops_.linear(in, w.rates.matrix, nullptr, rates_);
  }
  for (const StatePart& part : parts) {
    const std::size_t pieces = (part.count + kStateChunk - 1) / kStateChunk;
    const std::size_t reads = pieces - (part.held->empty() ? 1 : 0);
    StateLayers floats = s;
    floats.type = DType::kF32;
    counters.add(Cause::kActivations, (pieces + reads) * state_bytes(floats, shape_.hidden, DType::kF32));
  }
  transpose_taps(w.taps, taps_);
  convolved_.resize(tokens * channels);
  for (const StatePart& part : parts) convolve(w, part, stride);
  counters.add(Cause::kWeights, w.taps.bytes() + w.taps_bias.bytes());
  if (is_short) {
    // Gates and convolution are one operator: three rows in, one out.
    ops_.for_each(tokens, [&](std::size_t t) {
      const float* gate = projected_.data() + t * stride + channels;
      for (std::size_t i = 0; i < channels; ++i) convolved_[t * channels + i] *= gate[i];
    });
    counters.add(Cause::kActivations, 4 * tokens * channels * sizeof(float));
    ops_.linear(convolved_, w.out.matrix, nullptr, out);
    return;
  }
  ops_.for_each(tokens, [&](std::size_t t) {
    for (std::size_t c = t * channels; c < (t + 1) * channels; ++c) convolved_[c] *= sigmoid(convolved_[c]);
  });
  read_.resize(tokens * s.values());
  pass_matrices(w, parts);
  gate_heads(w, tokens);
  // States take what the convolution has just written, and the gate what was read of them.
  counters.add(Cause::kWeights,
               w.decay.bytes() + w.rate_bias.bytes() + w.skip.bytes() + w.norm.scale.bytes());
  counters.add(Cause::kActivations, tokens * (2 * channels + 3 * s.values()) * sizeof(float));
  ops_.linear(read_, w.out.matrix, nullptr, out);
}

}  // namespace kvroof
