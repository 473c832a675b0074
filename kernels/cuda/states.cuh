// Layers that hold a state in place of a cache.
#pragma once

#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/state_arguments.hpp"

namespace kvroof::cuda {

constexpr unsigned kConvolveThreads = 256;
constexpr unsigned kRuleThreads = 128;
constexpr unsigned kKeysOfLane = 32;
constexpr unsigned kGateThreads = 256;
constexpr float kStateKeyEps = 1e-6F;  // of the lengths of q and k

KV_DEVICE float* state_of(const StatePlaces& states, unsigned token) {
  return states.sequences[states.prompt ? 0 : token] + states.at;
}

// What a convolution runs over.
KV_DEVICE float convolved_input(const ConvolveArguments& a, unsigned token, unsigned channel) {
  const float* row = a.x + std::size_t{token} * a.x_row + channel;
  return a.is_short ? row[0] * row[2 * a.channels] : row[0];
}

// Blocks of kConvolveThreads, [tokens, channels / kConvolveThreads]; a thread a channel of a token. A prompt's rows are
// read where they are, and its last token leaves what is held; a step's token reads what is held and moves it on.
template <Stored kType>
KV_KERNEL void convolve(ConvolveArguments a) {
  await_previous();
  const unsigned t = block_x();
  const unsigned c = block_y() * kConvolveThreads + thread_x();
  if (c >= a.channels) return;
  float* held = state_of(a.states, t) + c;
  const unsigned before = a.width - 1;
  const float own = convolved_input(a, t, c);
  const std::size_t taps = std::size_t{c} * a.width;
  float sum = element<kType>(a.taps, taps + before) * own;
  if (a.bias != nullptr) sum += element<kType>(a.bias, c);
  for (unsigned j = 0; j < before; ++j) {
    const unsigned back = before - j;
    float x = 0;
    if (!a.states.prompt) {
      x = held[std::size_t{j} * a.channels];
      if (j > 0) held[(std::size_t{j} - 1) * a.channels] = x;
    } else if (t >= back) {
      x = convolved_input(a, t - back, c);
    }
    sum += element<kType>(a.taps, taps + j) * x;
  }
  if (before > 0 && !a.states.prompt) held[(std::size_t{before} - 1) * a.channels] = own;
  if (a.states.prompt && t + 1 == a.tokens) {
    for (unsigned j = 0; j < before; ++j) {
      const unsigned back = before - 1 - j;
      held[std::size_t{j} * a.channels] = t >= back ? convolved_input(a, t - back, c) : 0.0F;
    }
  }
  a.out[std::size_t{t} * a.channels + c] =
      a.is_short ? a.x[std::size_t{t} * a.x_row + a.channels + c] * sum : activated(ActivationMode::kSilu, sum);
}

// Of kLanes neighbours in a warp.
template <unsigned kLanes>
KV_DEVICE float lanes_sum(float x) {
  KV_UNROLL
  for (unsigned step = 1; step < kLanes; step *= 2) x += from_lane_xor(x, step);
  return x;
}

// 1 / |x| of lanes' shares of x.
template <unsigned kLanes>
KV_DEVICE float length_factor(const float (&x)[kKeysOfLane]) {
  float squares = 0;
  KV_UNROLL
  for (unsigned i = 0; i < kKeysOfLane; ++i) squares += x[i] * x[i];
  return rsqrt_of(lanes_sum<kLanes>(squares) + kStateKeyEps);
}

// How much of its matrix a head keeps, and how much of v it takes.
template <bool kDelta>
KV_DEVICE float2_t rates_of(const StateRuleArguments& a, unsigned token, unsigned head) {
  const float* rates = a.rates + std::size_t{token} * a.rates_row + head;
  const float x = rates[kDelta ? a.heads : 0] + a.rate_bias[head];
  const float softplus = x > 20.0F ? x : log1pf(expf(x));
  return {expf(-expf(a.decay[head]) * softplus), kDelta ? activated(ActivationMode::kSigmoid, rates[0]) : softplus};
}

// Blocks of kRuleThreads, [heads · groups of columns, sequences]. kLanes neighbours share a column of the head's
// matrix, kKeysOfLane rows of it each, which stay in registers while the tokens of a prompt pass: no thread waits for
// another warp's.
template <unsigned kLanes, bool kDelta>
KV_KERNEL void state_rule(StateRuleArguments a) {
  constexpr unsigned kColumns = kRuleThreads / kLanes;
  await_previous();
  const unsigned groups = (a.value_dim + kColumns - 1) / kColumns;
  const unsigned head = block_x() / groups;
  const unsigned column = block_x() % groups * kColumns + thread_x() / kLanes;
  const unsigned first = thread_x() % kLanes * kKeysOfLane;
  const bool used = column < a.value_dim;
  const unsigned count = !used || first >= a.key_dim          ? 0
                         : a.key_dim - first < kKeysOfLane ? a.key_dim - first
                                                           : kKeysOfLane;
  const unsigned keys = a.key_heads * a.key_dim;
  const std::size_t row = std::size_t{2} * keys + std::size_t{a.heads} * a.value_dim;
  float* matrix = state_of(a.states, block_y()) + (std::size_t{head} * a.key_dim + first) * a.value_dim + column;
  float s[kKeysOfLane] = {};
  if (!a.states.prompt) {
    KV_UNROLL
    for (unsigned i = 0; i < kKeysOfLane; ++i) {
      if (i < count) s[i] = matrix[std::size_t{i} * a.value_dim];
    }
  }
  const unsigned first_token = a.states.prompt ? 0 : block_y();
  const unsigned end = a.states.prompt ? a.tokens : first_token + 1;
  for (unsigned t = first_token; t < end; ++t) {
    const float* x = a.x + t * row + std::size_t{head / (a.heads / a.key_heads)} * a.key_dim + first;
    float q[kKeysOfLane], k[kKeysOfLane];
    KV_UNROLL
    for (unsigned i = 0; i < kKeysOfLane; ++i) {
      q[i] = i < count ? x[i] : 0.0F;
      k[i] = i < count ? x[keys + i] : 0.0F;
    }
    const float q_factor = kDelta ? length_factor<kLanes>(q) * rsqrt_of(static_cast<float>(a.key_dim)) : 1.0F;
    const float k_factor = kDelta ? length_factor<kLanes>(k) : 1.0F;
    const float2_t rates = rates_of<kDelta>(a, t, head);
    float known = 0;
    KV_UNROLL
    for (unsigned i = 0; i < kKeysOfLane; ++i) {
      k[i] *= k_factor;
      s[i] *= rates.x;
      known += s[i] * k[i];
    }
    known = kDelta ? lanes_sum<kLanes>(known) : 0.0F;
    const float v = used ? a.x[t * row + 2 * keys + std::size_t{head} * a.value_dim + column] : 0.0F;
    const float change = (v - known) * rates.y;
    float read = 0;
    KV_UNROLL
    for (unsigned i = 0; i < kKeysOfLane; ++i) {
      s[i] += k[i] * change;
      read += s[i] * q[i];
    }
    read = lanes_sum<kLanes>(read) * q_factor;
    if (!kDelta) read += a.skip[head] * v;
    if (used && first == 0) a.out[(std::size_t{t} * a.heads + head) * a.value_dim + column] = read;
  }
  KV_UNROLL
  for (unsigned i = 0; i < kKeysOfLane; ++i) {
    if (i < count) matrix[std::size_t{i} * a.value_dim] = s[i];
  }
}

// Blocks of kGateThreads, a warp a head of a token.
template <Stored kType>
KV_KERNEL void gate_heads(GateArguments a) {
  await_previous();
  const unsigned i = block_x() * (kGateThreads / 32) + thread_x() / 32;
  if (i >= a.tokens * a.heads) return;  // a whole warp
  const unsigned lane = thread_x() % 32;
  float* x = a.x + std::size_t{i} * a.dim;
  const float* gate = a.gate + std::size_t{i / a.heads} * a.gate_row + std::size_t{i % a.heads} * a.dim;
  float factor = 1;
  if (a.scale != nullptr) {
    float squares = 0;
    for (unsigned d = lane; d < a.dim; d += 32) squares += x[d] * x[d];
    factor = rsqrt_of(lanes_sum<32>(squares) / static_cast<float>(a.dim) + a.eps);
  }
  for (unsigned d = lane; d < a.dim; d += 32) {
    const float scale = a.scale != nullptr ? element<kType>(a.scale, d) : 1.0F;
    x[d] *= factor * scale * activated(a.f, gate[d]);
  }
}

// Blocks of kGateThreads, [tokens, groups].
template <Stored kType>
KV_KERNEL void gate_groups(GateArguments a) {
  KV_SHARED(float, sums, kGateThreads / 32);
  await_previous();
  const std::size_t token = block_x(), group = block_y();
  float* x = a.x + (token * a.heads + group) * a.dim;
  const float* gate = a.gate + token * a.gate_row + group * a.dim;
  float squares = 0;
  for (unsigned d = thread_x(); d < a.dim; d += kGateThreads) {
    const float gated = x[d] * activated(a.f, gate[d]);
    x[d] = gated;
    squares += gated * gated;
  }
  const float factor = rsqrt_of(block_sum(squares, sums) / static_cast<float>(a.dim) + a.eps);
  for (unsigned d = thread_x(); d < a.dim; d += kGateThreads) {
    x[d] *= factor * element<kType>(a.scale, group * a.dim + d);
  }
}

}  // namespace kvroof::cuda
