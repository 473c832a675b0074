// SIMD kernels of the fast back end; each is dispatched at run time to the widest instruction set of the host.
//
// All are single-threaded and add in an order that depends on the sizes alone. Sizes and shapes are the caller's to
// check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/attention/attention.hpp"
#include "sim/model/config_json.hpp"

namespace kvroof::fast {

// Floats that one packed vector of `cols` elements takes: cols rounded up to a whole number of SIMD steps.
std::size_t packed_size(std::size_t cols);

// Reorders `count` float vectors of `cols` elements (vector t at x + t · stride) the way dot_rows wants to meet
// elements of `type`, and fills them up with zeros: vector t goes to packed + t · packed_size(cols).
void pack_vectors(DType type, const float* x, std::size_t stride, std::size_t count, std::size_t cols, float* packed);

// out[t · out_stride + r] = rows.row(r) · vector t, for all rows and `count` packed vectors. Each row comes from memory
// once. The sum of a row and a vector does not depend on the other rows and vectors.
void dot_rows(const RowsView& rows, const float* packed, std::size_t count, float* out, std::size_t out_stride);

// out[g · out_stride + c] = Σ_s weights[g · weights_stride + s] · rows.row(s)[c] for g < group.
void weighted_rows(const float* weights, std::size_t weights_stride, std::size_t group, const RowsView& rows,
                   float* out, std::size_t out_stride);

// Converts rows to float: row r goes to out + r · rows.width.
void convert_rows(const RowsView& rows, float* out);

// weights = softmax(logits); may be the same memory; sizes equal and ≥ 1. A NaN gives NaN everywhere.
void softmax_row(std::span<const float> logits, std::span<float> weights, AttentionSink sink = {});

// out = x / sqrt(mean(x²) + eps) · (w + offset); sizes equal; out may be x.
void rms_norm_row(std::span<const float> x, std::span<const float> w, float eps, float offset, std::span<float> out);
struct LayerNormRule {
  float eps, offset;
};
// out = (x − mean) / sqrt(variance + eps) · (w + offset) + bias; sizes equal, bias may be empty; out may be x.
void layer_norm_row(std::span<const float> x, std::span<const float> w, std::span<const float> bias,
                    LayerNormRule rule, std::span<float> out);

// out = f(gate) · up; sizes equal; out may be gate.
void gated(Activation f, std::span<const float> gate, std::span<const float> up, std::span<float> out);
// x = f(x).
void activate(Activation f, std::span<float> x);
// x = cap · tanh(x / cap).
void soft_cap(std::span<float> x, float cap);
// x += factor · y; sizes equal.
void add_scaled(std::span<float> x, float factor, std::span<const float> y);

// x += y; sizes equal.
void add(std::span<float> x, std::span<const float> y);

// Rotates pairs of x by angles with the given cosines and sines: pair i is (x[i], x[i + pairs]) or (x[2i], x[2i + 1]).
void rotate_half_split(float* x, std::span<const float> cosines, std::span<const float> sines);
void rotate_adjacent(float* x, std::span<const float> cosines, std::span<const float> sines);

// Sums the bytes of a buffer, eight to a word: reads everything, does as little as it can beside.
std::uint64_t read_sum(std::span<const std::byte> buffer);

// Copies with stores that bypass the caches; both sizes equal and a multiple of 64, both aligned to 64.
void stream_copy(std::span<const std::byte> from, std::span<std::byte> to);

// Multiplies and adds in registers as fast as one core can, `rounds` times; returns the operations done, a
// multiplication and an addition counting as two.
std::uint64_t multiply_add_in_registers(std::uint64_t rounds);

}  // namespace kvroof::fast
