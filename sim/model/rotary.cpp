#include "sim/model/rotary.hpp"

#include <cmath>

namespace kvroof {

std::vector<float> plain_inverse_frequencies(double theta, std::uint32_t dims) {
  std::vector<float> frequencies(dims / 2);
  for (std::uint32_t i = 0; i < dims / 2; ++i) {
    const auto exponent = static_cast<float>(2 * i) / static_cast<float>(dims);
    frequencies[i] = 1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  return frequencies;
}

RotaryRule plain_rotary(RotaryStyle style, std::uint32_t dims, double theta) {
  RotaryRule rule;
  rule.style = style;
  rule.dims = dims;
  rule.theta = theta;
  rule.inverse_frequencies = plain_inverse_frequencies(theta, dims);
  return rule;
}

}  // namespace kvroof
