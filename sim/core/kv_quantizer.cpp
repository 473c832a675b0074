#include "sim/core/kv_quantizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kMostInGroup = 64;

void round_trip_group(std::uint32_t bits, std::span<float> x) {
  std::array<std::uint8_t, kMostInGroup> levels;
  const auto used = std::span(levels).first(x.size());
  dequantise_group(quantise_group(bits, DType::kF16, x, used), DType::kF16, used, x);
}

void round_trip_groups(std::uint32_t bits, std::size_t group, std::span<float> row) {
  for (std::size_t first = 0; first < row.size(); first += group) {
    round_trip_group(bits, row.subspan(first, std::min(group, row.size() - first)));
  }
}

void round_trip_symmetric(std::uint32_t bits, std::span<float> row) {
  float largest = 0;
  for (const float x : row) largest = std::max(largest, std::fabs(x));
  const float scale = largest / static_cast<float>((1 << (bits - 1)) - 1);
  const float factor = scale > 0 ? 1.0F / scale : 0.0F;
  for (float& x : row) x = std::nearbyint(x * factor) * scale;
}

}  // namespace

GroupScale quantise_group(std::uint32_t bits, DType arithmetic, std::span<const float> x,
                          std::span<std::uint8_t> levels) {
  check(!x.empty() && x.size() == levels.size(), "quantise_group: a level for each element");
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  const auto highest = static_cast<float>((1U << bits) - 1);
  GroupScale group{0, *least};
  group.scale = round_to(arithmetic, round_to(arithmetic, *most - *least) / highest);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float steps = round_to(arithmetic, round_to(arithmetic, x[i] - group.minimum) / group.scale);
    // Of equal elements, 0 / 0; of what is not finite, anything: it comes back as it can.
    levels[i] = steps > 0 ? static_cast<std::uint8_t>(std::nearbyint(std::min(steps, highest))) : 0;
  }
  return group;
}

void dequantise_group(GroupScale group, DType arithmetic, std::span<const std::uint8_t> levels, std::span<float> x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float above = round_to(arithmetic, static_cast<float>(levels[i]) * group.scale);
    x[i] = round_to(arithmetic, above + group.minimum);
  }
}

void round_trip_row(KvType type, std::span<float> row) {
  if (type == KvType::kInt8 || type == KvType::kInt4) return round_trip_symmetric(type.bits(), row);
  for (float& x : row) x = round_to(type.rows(), x);
  if (type == KvType::kInt4G64) round_trip_groups(type.bits(), kMostInGroup, row);
}

void round_trip_aged_value(KvType type, std::span<float> row) { round_trip_groups(type.bits(), kKiviGroup, row); }

void round_trip_aged_keys(KvType type, std::span<float> rows, std::size_t width) {
  std::array<float, kKiviGroup> channel;
  const std::size_t tokens = rows.size() / width;
  check(tokens <= kKiviGroup, "round_trip_aged_keys: one group of tokens");
  for (std::size_t c = 0; c < width && tokens > 0; ++c) {
    for (std::size_t t = 0; t < tokens; ++t) channel[t] = rows[t * width + c];
    round_trip_group(type.bits(), std::span(channel).first(tokens));
    for (std::size_t t = 0; t < tokens; ++t) rows[t * width + c] = channel[t];
  }
}

}  // namespace kvroof
