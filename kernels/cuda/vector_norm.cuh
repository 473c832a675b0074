// Norms of vectors: what one needs of the whole of a vector, and what becomes of its elements.
#pragma once

#include "kernels/cuda/numbers.cuh"

namespace kvroof::cuda {

// Eights that a thread asks for at once: of a row of 4096 all that the threads of a block need.
constexpr unsigned kTogether = 2;

// The sum of term(element) over eights `first`, `first + step`, … of a row of x.
template <class Term>
KV_DEVICE float sum_of_eights(const float* x, std::uint32_t cols, unsigned first, unsigned step, const Term& term) {
  float sum = 0;
  for (unsigned i = first; i < cols / 8; i += kTogether * step) {
    float eights[kTogether][8] = {};
    KV_UNROLL
    for (unsigned u = 0; u < kTogether; ++u) {
      if (i + u * step < cols / 8) load_floats(x + std::size_t{i + u * step} * 8, eights[u]);
    }
    KV_UNROLL
    for (unsigned u = 0; u < kTogether; ++u) {
      if (i + u * step >= cols / 8) continue;
      KV_UNROLL
      for (unsigned j = 0; j < 8; ++j) sum += term(eights[u][j]);
    }
  }
  return sum;
}

// (centre, factor): the norm of a row is (x − centre) · factor · (scale + offset) + bias. For `step` threads, of which
// this is number `first`; `all` makes the sum of all of them out of a thread's. x is aligned to 16 bytes.
template <class All>
KV_DEVICE float2_t norm_by(const float* x, std::uint32_t cols, NormMode mode, float eps, unsigned first, unsigned step,
                           const All& all) {
  float2_t result = {0.0F, 1.0F};
  if (mode == NormMode::kNone) return result;
  if (mode == NormMode::kLayer) {
    const float sum = sum_of_eights(x, cols, first, step, [](float v) { return v; });
    result.x = all(sum) / static_cast<float>(cols);
  }
  const float centre = result.x;
  const float squares = sum_of_eights(x, cols, first, step, [=](float v) { return (v - centre) * (v - centre); });
  result.y = rsqrt_of(all(squares) / static_cast<float>(cols) + eps);
  return result;
}

// By all threads of a block.
KV_DEVICE float2_t norm_of(const float* x, std::uint32_t cols, NormMode mode, float eps, float* scratch) {
  return norm_by(x, cols, mode, eps, thread_x(), threads_x(), [=](float sum) { return block_sum(sum, scratch); });
}

// Eight columns of a norm's scale and bias, as they are stored.
template <Stored kType>
struct NormColumns {
  Eight<kType> scale = {}, bias = {};
};

template <Stored kType>
KV_DEVICE NormColumns<kType> load_norm_columns(const LinearArguments& a, unsigned column) {
  NormColumns<kType> out;
  if (a.norm == NormMode::kNone) return out;
  out.scale = load_eight<kType, true>(a.norm_scale, column / 8);
  if (a.norm_bias != nullptr) out.bias = load_eight<kType, true>(a.norm_bias, column / 8);
  return out;
}

// Those columns of a vector whose norm is `norm`.
template <Stored kType>
KV_DEVICE void apply_norm(const LinearArguments& a, float2_t norm, const NormColumns<kType>& columns, float (&x)[8]) {
  if (a.norm == NormMode::kNone) return;
  float scale[8];
  float bias[8];
  to_floats<kType>(columns.scale, scale);
  to_floats<kType>(columns.bias, bias);
  KV_UNROLL
  for (unsigned i = 0; i < 8; ++i) x[i] = (x[i] - norm.x) * norm.y * (scale[i] + a.norm_offset) + bias[i];
}

}  // namespace kvroof::cuda
