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

}  // namespace

// convolved_ = Σ taps · the rows of projected_ up to the token, as long as the convolution is; then the last rows are
// held for the next token.
void StateLayer::convolve(const StateWeights& w, const StatePart& part, std::size_t stride) {
  const std::size_t channels = w.taps.rows, width = w.taps.cols, before = width - 1;
  std::vector<float>& held = part.held->rows;
  held.resize(before * channels);
  const float* x = projected_.data() + part.first * stride;
  // Row i − before of the part, of which the first are held.
  const auto row = [&](std::size_t i) { return i < before ? held.data() + i * channels : x + (i - before) * stride; };
  ops_.for_each((channels + kChannelsOfTask - 1) / kChannelsOfTask, [&](std::size_t task) {
    const std::size_t from = task * kChannelsOfTask, end = std::min(channels, from + kChannelsOfTask);
    for (std::size_t t = 0; t < part.count; ++t) {
      float* out = convolved_.data() + (part.first + t) * channels;
      std::fill(out + from, out + end, 0.0F);
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

// S ← e^−g S; S ← S + k βᵀ(v − Sᵀk); out = Sᵀq, of a head, with k of length 1 and q of length 1/√key_dim.
void StateLayer::pass_head(const StateWeights& w, const StatePart& piece, std::size_t head) {
  const StateLayers& s = shape_.state;
  const std::size_t keys = s.key_dim, values = s.value_dim, channels = w.taps.rows;
  const std::size_t key_head = head / (s.heads / s.key_heads);
  const float rate = std::exp(float_at(w.decay, head)), bias = float_at(w.rate_bias, head);
  float* matrix = piece.held->matrices.data() + head * keys * values;
  std::vector<float> q(keys), k(keys), change(values);
  for (std::size_t t = piece.first; t < piece.first + piece.count; ++t) {
    const std::span<const float> row(convolved_.data() + t * channels, channels);
    const float* rates = rates_.data() + t * 2 * s.heads;
    const float kept = std::exp(-rate * softplus(rates[s.heads + head] + bias)), taken = sigmoid(rates[head]);
    scale_to(row.subspan(key_head * keys, keys), 1.0F / std::sqrt(static_cast<float>(keys)), q);
    scale_to(row.subspan(s.keys() + key_head * keys, keys), 1, k);
    std::fill(change.begin(), change.end(), 0.0F);
    for (std::size_t d = 0; d < keys; ++d) {
      float* line = matrix + d * values;
      for (std::size_t i = 0; i < values; ++i) {
        line[i] *= kept;
        change[i] += k[d] * line[i];
      }
    }
    const float* v = row.data() + 2 * s.keys() + head * values;
    for (std::size_t i = 0; i < values; ++i) change[i] = (v[i] - change[i]) * taken;
    float* out = read_.data() + (t * s.heads + head) * values;
    std::fill(out, out + values, 0.0F);
    for (std::size_t d = 0; d < keys; ++d) {
      float* line = matrix + d * values;
      for (std::size_t i = 0; i < values; ++i) {
        line[i] += k[d] * change[i];
        out[i] += q[d] * line[i];
      }
    }
  }
}

// Heads of all sequences are independent; the tokens of a sequence follow each other.
void StateLayer::apply_delta_rule(const StateWeights& w, std::span<const StatePart> parts) {
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

// What heads read is normed, each by itself, and takes the gate: norm(x) · silu(gate).
void StateLayer::gate_heads(const StateWeights& w, std::size_t tokens) {
  const StateLayers& s = shape_.state;
  const std::size_t values = s.value_dim, stride = w.in.matrix.rows, gate_at = 2 * s.keys() + s.values();
  std::vector<float> scale(values);
  convert_to_float(w.norm.scale.type, w.norm.scale.view().row(0), scale);
  ops_.for_each(tokens, [&](std::size_t t) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      const std::span<float> x(read_.data() + (t * s.heads + h) * values, values);
      const float* gate = projected_.data() + t * stride + gate_at + h * values;
      float squares = 0;
      for (const float value : x) squares += value * value;
      const float factor = 1.0F / std::sqrt(squares / static_cast<float>(values) + norm_eps_);
      for (std::size_t i = 0; i < values; ++i) x[i] *= factor * scale[i] * gate[i] * sigmoid(gate[i]);
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
  const bool delta = s.kind == StateKind::kGatedDelta;
  const std::size_t tokens = in.size() / shape_.hidden, channels = w.taps.rows, stride = w.in.matrix.rows;
  ByteCounters& counters = ops_.counters();
  projected_.resize(tokens * stride);
  ops_.linear(in, w.in.matrix, nullptr, projected_);
  if (delta) {
    rates_.resize(tokens * 2 * s.heads);
    ops_.linear(in, w.rates.matrix, nullptr, rates_);
  } else {
    make_gated(tokens);
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
  counters.add(Cause::kWeights, w.taps.bytes());
  if (!delta) {
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
  apply_delta_rule(w, parts);
  gate_heads(w, tokens);
  // The rule takes what the convolution has just written, and the gate what the rule has.
  counters.add(Cause::kWeights, w.decay.bytes() + w.rate_bias.bytes() + w.norm.scale.bytes());
  counters.add(Cause::kActivations, tokens * (2 * channels + 3 * s.values()) * sizeof(float));
  ops_.linear(read_, w.out.matrix, nullptr, out);
}

}  // namespace kvroof
