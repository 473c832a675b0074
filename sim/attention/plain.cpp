#include "sim/attention/plain.hpp"

#include <algorithm>
#include <array>

#include "sim/attention/portable_math.hpp"

namespace kvroof::plain {
namespace {

constexpr std::size_t kLanes = 16;
using Lanes = std::array<float, kLanes>;

float fold_by_halves(Lanes lanes) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  }
  return lanes[0];
}

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

void softmax(const float* logits, float* weights, std::size_t count, float& largest, float& sum) {
  largest = *std::max_element(logits, logits + count);
  Lanes lanes{};
  for (std::size_t i = 0; i < count; ++i) {
    weights[i] = portable::exp_of_negative(logits[i] - largest);
    lanes[i % kLanes] = lanes[i % kLanes] + weights[i];
  }
  sum = fold_by_halves(lanes);
  const float inverse = 1 / sum;
  for (std::size_t i = 0; i < count; ++i) weights[i] = weights[i] * inverse;
}

void weighted_sum(const float* weights, const RowsView& values, float* out) {
  std::fill(out, out + values.width, 0.0F);
  for (std::size_t i = 0; i < values.count; ++i) {
    for (std::size_t j = 0; j < values.width; ++j) out[j] = out[j] + weights[i] * element(values, i, j);
  }
}

}  // namespace kvroof::plain
