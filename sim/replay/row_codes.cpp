#include "sim/replay/row_codes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "sim/attention/attention.hpp"
#include "sim/attention/sums.hpp"

namespace kvroof {
namespace {

// A float's bits from bit 20 on are its exponent and three bits of its mantissa: those of 2^−31 are code 0's.
constexpr std::uint32_t kShift = 20;
constexpr std::uint32_t kBias = (127 - 31) << 3;

constexpr std::array<float, 256> kWeights = [] {
  std::array<float, 256> table{};
  for (std::uint32_t code = 1; code < 256; ++code) table[code] = std::bit_cast<float>((code + kBias) << kShift);
  return table;
}();
const std::array<float, 256> kLogits = [] {
  std::array<float, 256> table{};
  std::ranges::transform(kWeights, table.begin(), [](float weight) { return std::log(weight); });
  table[0] = std::log(kWeights[1] / 2);
  return table;
}();

}  // namespace

std::uint8_t floor_code(float weight) {
  const auto code = static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(weight) >> kShift) - kBias;
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(code, 0, 255));
}

void RowEncoder::start_layer(std::uint32_t heads, std::uint32_t tokens) {
  tokens_ = tokens;
  owed_.assign(heads * tokens_, 0.0F);
}

RowPeak RowEncoder::encode(std::uint32_t head, std::span<const float> logits, std::uint32_t hidden,
                           std::span<std::uint8_t> codes) {
  thread_local std::vector<float> weights;
  const std::span<const float> seen = logits.subspan(hidden);
  weights.resize(seen.size());
  exponentials(seen, weights);
  const auto peak = static_cast<std::size_t>(std::ranges::max_element(weights) - weights.begin());
  const double sum = sum_of(weights);
  const auto share = static_cast<float>(1 / sum);
  float* owed = owed_.data() + head * tokens_ + hidden;
  double others = 0;
  std::fill_n(codes.begin(), hidden, std::uint8_t{0});
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const std::uint8_t low = floor_code(weights[i]);
    const auto high = static_cast<std::uint8_t>(std::min(low + 1, 255));
    const float with_low = owed[i] + (weights[i] - kWeights[low]) * share;
    const float with_high = owed[i] + (weights[i] - kWeights[high]) * share;
    const bool is_low = std::abs(with_low) <= std::abs(with_high);
    codes[hidden + i] = is_low ? low : high;
    if (i == peak) continue;
    owed[i] = is_low ? with_low : with_high;
    others += static_cast<double>(kWeights[codes[hidden + i]]);
  }
  // Never less than half of what it is: where the others' rounding is more than that, they are many and alike.
  const auto weight = std::max(static_cast<float>(sum - others), weights[peak] / 2);
  owed[peak] += (weights[peak] - weight) * share;
  const float offset = seen[peak] - std::log(weights[peak]);
  return {static_cast<float>(sum), hidden + static_cast<std::uint32_t>(peak), weight, offset};
}

void decode_row(std::span<const std::uint8_t> codes, const RowPeak& peak, std::uint32_t hidden,
                std::span<float> logits) {
  std::fill_n(logits.begin(), hidden, -std::numeric_limits<float>::infinity());
  for (std::size_t i = hidden; i < codes.size(); ++i) logits[i] = kLogits[codes[i]] + peak.offset;
  logits[peak.token] = std::log(peak.weight) + peak.offset;
}

}  // namespace kvroof
