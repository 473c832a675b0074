// What comes before and after a product that a library makes: vectors normed and rounded to the weights' type, and the
// rest of a linear map (bias, activation, gate, …) in the place of its products.
#pragma once

#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/matrix_unit.cuh"

namespace kvroof::cuda {

constexpr unsigned kLinearRowThreads = 256;

// Blocks of kLinearRowThreads, one a vector.
template <Stored kType>
KV_KERNEL void round_vectors(ProductArguments arguments) {
  const LinearArguments& a = arguments.linear;
  KV_SHARED(float, scratch, kLinearRowThreads / 32);
  await_previous();
  const float* x = a.x + std::size_t{block_x()} * a.x_row;
  auto* const out = reinterpret_cast<Pack*>(arguments.rounded) + std::size_t{block_x()} * (a.w.cols / 8);
  const float2_t norm = norm_of(x, a.w.cols, a.norm, a.norm_eps, scratch);
  for (unsigned i = thread_x(); i < a.w.cols / 8; i += kLinearRowThreads) {
    float eight[8];
    load_floats(x + i * 8, eight);
    apply_norm<kType>(a, norm, load_norm_columns<kType>(a, i * 8), eight);
    out[i] = packed_eight<kType>(eight);
  }
}

// Blocks of kLinearRowThreads: x over tokens, y over kFinishedRows rows. linear.out holds the products with linear.w,
// and gets what run_linear would have written.
constexpr unsigned kFinishedRows = 4 * kLinearRowThreads;
template <Stored kType>
KV_KERNEL void finish_products(ProductArguments arguments) {
  const LinearArguments& a = arguments.linear;
  await_previous();
  const unsigned t = block_x();
  const unsigned first = block_y() * kFinishedRows + thread_x();
  for (unsigned row = first; row < a.w.rows && row < first + kFinishedRows; row += kLinearRowThreads) {
    const float up = a.up.rows > 0 ? arguments.ups[std::size_t{t} * a.w.rows + row] : 0.0F;
    finish_product<kType>(a, row, t, a.out[std::size_t{t} * a.out_row + row], up);
  }
}

}  // namespace kvroof::cuda
