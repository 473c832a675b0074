#include "sim/core/alibi.hpp"

#include <bit>
#include <cmath>

namespace kvroof {

std::vector<float> alibi_slopes(std::uint32_t heads, float bias_max) {
  const std::uint32_t rounded = std::bit_ceil(heads);
  std::vector<float> slopes;
  slopes.reserve(rounded);
  const auto slope = [&](std::uint32_t i) {
    return static_cast<float>(std::exp2(-static_cast<double>(i + 1) * static_cast<double>(bias_max) / rounded));
  };
  if (rounded == heads) {
    for (std::uint32_t i = 0; i < heads; ++i) slopes.push_back(slope(i));
    return slopes;
  }
  for (std::uint32_t i = 1; i < rounded; i += 2) slopes.push_back(slope(i));
  for (std::uint32_t i = 0; i < rounded; i += 2) slopes.push_back(slope(i));
  slopes.resize(heads);
  return slopes;
}

}  // namespace kvroof
