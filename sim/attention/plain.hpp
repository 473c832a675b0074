// The functions of vector.hpp one element after the other: what the vector code must equal bit for bit, and what
// runs where there is no vector unit.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "sim/attention/vector.hpp"

namespace kvroof::plain {

void scaled_dots(const float* q, const RowsView& keys, float scale, float* out);
void weighted_sum(const float* weights, const RowsView& values, float* out);
void turn(const RowsView& rows, std::size_t stride, float* out);
void scaled_dots(std::span<const float* const> q, const float* columns, std::size_t width, std::size_t stride,
                 float scale, float* out);
Range range_of(const float* x, std::size_t count);
Range scaled_sums(const float* x, const float* y, std::size_t count, float factor, float* out);
float exponentials(const float* x, std::size_t count, const ExponentOrigin& origin, float* e);
float sum(const float* x, std::size_t count);
void scale(const float* x, std::size_t count, float factor, float* out);
void interleave(const RowPointers& rows, std::size_t count, float* out, std::size_t stride);
void interleaved_exponentials(const RowPointers& x, const RowOrigins& origins, std::size_t count, float* out);
void interleaved_exponentials(const RowPointers& x, const RowNoise& noise, const RowOrigins& origins,
                              std::size_t count, float* out);
void gather_interleaved(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride);

}  // namespace kvroof::plain
