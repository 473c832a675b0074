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
using RowOrigins = std::array<ExponentOrigin, kInterleavedRows>;
using RowPointers = std::array<const float*, kInterleavedRows>;
inline RowPointers rows_from(RowPointers rows, std::size_t i) {
  for (const float*& row : rows) row += i;
  return rows;
}

// What (x + noise) · factor takes the place of.
struct RowNoise {
  RowPointers draws;
  std::array<float, kInterleavedRows> factors;
};

}  // namespace kvroof

namespace kvroof::vector {

// out[i] = scale · (q · keys.row(i)).
void scaled_dots(const float* q, const RowsView& keys, float scale, float* out);
void weighted_sum(const float* weights, const RowsView& values, float* out);
// out[j · stride + i] = element j of row min(i, count − 1), for i < stride, a multiple of 16; count ≥ 1.
void turn(const RowsView& rows, std::size_t stride, float* out);
// out[i · stride + r] = scale · (q[i] · column r) of columns that turn() made of rows.
void scaled_dots(std::span<const float* const> q, const float* columns, std::size_t width, std::size_t stride,
                 float scale, float* out);

// count ≥ 1; no NaN.
Range range_of(const float* x, std::size_t count);
// out[i] = (x[i] + y[i]) · factor, without y x[i] · factor; returns the range of these. Other memory; count ≥ 1;
// no NaN.
Range scaled_sums(const float* x, const float* y, std::size_t count, float factor, float* out);
// e[i] = portable::exp_over(x[i] − origin.shift, origin.reference); returns the sum. May be the same memory.
float exponentials(const float* x, std::size_t count, const ExponentOrigin& origin, float* e);
// kSumLanes interleaved sums, folded by halves.
float sum(const float* x, std::size_t count);
// out[i] = x[i] · factor; may be the same memory.
void scale(const float* x, std::size_t count, float factor, float* out);

// out[i · stride + r] = rows[r][i] for i < count. gather_interleaved() as in attention.hpp; interleaved_exponentials():
// interleave() of what exponentials() makes of each row, kInterleavedRows apart.
void interleave(const RowPointers& rows, std::size_t count, float* out, std::size_t stride);
void interleaved_exponentials(const RowPointers& x, const RowOrigins& origins, std::size_t count, float* out);
void interleaved_exponentials(const RowPointers& x, const RowNoise& noise, const RowOrigins& origins,
                              std::size_t count, float* out);
void gather_interleaved(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride);

}  // namespace kvroof::vector
