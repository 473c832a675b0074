#include "sim/attention/plain.hpp"

#include <algorithm>
#include <array>

#include "sim/attention/portable_math.hpp"

namespace kvroof::plain {
namespace {

using portable::fold_by_halves;
constexpr std::size_t kLanes = 16;
using Lanes = std::array<float, kLanes>;
using SumLanes = std::array<float, kSumLanes>;

float element(const RowsView& rows, std::size_t i, std::size_t j) {
  float value = 0;
  convert_to_float(rows.type, rows.row(i) + j * size_of(rows.type), {&value, 1});
  return value;
}

}  // namespace

void scaled_dots(const float* q, const RowsView& keys, float scale, float* out) {
  for (std::size_t i = 0; i < keys.count; ++i) {
    Lanes lanes{};
    for (std::size_t j = 0; j < keys.width; ++j) {
      lanes[j % kLanes] = lanes[j % kLanes] + q[j] * element(keys, i, j);
    }
    out[i] = fold_by_halves(lanes) * scale;
  }
}

void weighted_sum(const float* weights, const RowsView& values, float* out) {
  std::fill(out, out + values.width, 0.0F);
  for (std::size_t i = 0; i < values.count; ++i) {
    for (std::size_t j = 0; j < values.width; ++j) out[j] = out[j] + weights[i] * element(values, i, j);
  }
}

void turn(const RowsView& rows, std::size_t stride, float* out) {
  for (std::size_t i = 0; i < stride; ++i) {
    for (std::size_t j = 0; j < rows.width; ++j) out[j * stride + i] = element(rows, std::min(i, rows.count - 1), j);
  }
}

void scaled_dots(std::span<const float* const> q, const float* columns, std::size_t width, std::size_t stride,
                 float scale, float* out) {
  for (std::size_t i = 0; i < q.size(); ++i) {
    for (std::size_t r = 0; r < stride; ++r) {
      Lanes lanes{};
      for (std::size_t j = 0; j < width; ++j) lanes[j % kLanes] = lanes[j % kLanes] + q[i][j] * columns[j * stride + r];
      out[i * stride + r] = fold_by_halves(lanes) * scale;
    }
  }
}

Range range_of(const float* x, std::size_t count) {
  const auto [least, most] = std::minmax_element(x, x + count);
  return {*least, *most};
}

Range scaled_sums(const float* x, const float* y, std::size_t count, float factor, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = (y == nullptr ? x[i] : x[i] + y[i]) * factor;
  return range_of(out, count);
}

float exponentials(const float* x, std::size_t count, const ExponentOrigin& origin, float* e) {
  SumLanes lanes{};
  for (std::size_t i = 0; i < count; ++i) {
    e[i] = portable::exp_over(x[i] - origin.shift, origin.reference);
    lanes[i % kSumLanes] = lanes[i % kSumLanes] + e[i];
  }
  return fold_by_halves(lanes);
}

float sum(const float* x, std::size_t count) {
  SumLanes lanes{};
  for (std::size_t i = 0; i < count; ++i) lanes[i % kSumLanes] = lanes[i % kSumLanes] + x[i];
  return fold_by_halves(lanes);
}

void scale(const float* x, std::size_t count, float factor, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = x[i] * factor;
}

void interleave(const RowPointers& rows, std::size_t count, float* out, std::size_t stride) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < kInterleavedRows; ++r) out[i * stride + r] = rows[r][i];
  }
}

void interleaved_exponentials(const RowPointers& x, const RowOrigins& origins, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < kInterleavedRows; ++r) {
      out[i * kInterleavedRows + r] = portable::exp_over(x[r][i] - origins[r].shift, origins[r].reference);
    }
  }
}

void interleaved_exponentials(const RowPointers& x, const RowNoise& noise, const RowOrigins& origins,
                              std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < kInterleavedRows; ++r) {
      const float noisy = (x[r][i] + noise.draws[r][i]) * noise.factors[r];
      out[i * kInterleavedRows + r] = portable::exp_over(noisy - origins[r].shift, origins[r].reference);
    }
  }
}

void gather_interleaved(const float* rows, std::span<const TokenPos> index, float* out, std::size_t stride) {
  for (std::size_t s = 0; s < index.size(); ++s) {
    for (std::size_t r = 0; r < kInterleavedRows; ++r) {
      out[r * stride + s] = rows[std::size_t{index[s].value} * kInterleavedRows + r];
    }
  }
}

}  // namespace kvroof::plain
