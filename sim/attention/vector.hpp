// Entry points of the vector code, each dispatched at run time to the best instruction set of this processor.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "sim/attention/attention.hpp"

namespace kvroof {

inline constexpr std::size_t kSumLanes = 32;  // enough that an addition need not wait for the one before

struct Range {
  float least, most;
};

// What the exponentials of a row are relative to: x − shift, and powers of two below the reference's
// (portable::shifted_exponent).
struct ExponentOrigin {
  float shift, reference;
};

}  // namespace kvroof

namespace kvroof::vector {

// out[i] = scale · (q · keys.row(i)).
void scaled_dots(const float* q, const RowsView& keys, float scale, float* out);
void weighted_sum(const float* weights, const RowsView& values, float* out);

// count ≥ 1; no NaN.
Range range_of(const float* x, std::size_t count);
// e[i] = portable::exp_over(x[i] − origin.shift, origin.reference); returns the sum. May be the same memory.
float exponentials(const float* x, std::size_t count, const ExponentOrigin& origin, float* e);
// kSumLanes interleaved sums, folded by halves.
float sum(const float* x, std::size_t count);
// out[i] = x[i] · factor; may be the same memory.
void scale(const float* x, std::size_t count, float factor, float* out);

// As in attention.hpp.
void interleave(const std::array<const float*, kInterleavedRows>& rows, std::size_t count, float* out);
void gather_interleaved(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride);

}  // namespace kvroof::vector
