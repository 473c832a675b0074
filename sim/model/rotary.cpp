#include "sim/model/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

// Index of the pair that turns `turns` times within the original context, as a real number.
double pair_with_turns(double turns, const RotaryRule& rule, double original) {
  return rule.dims * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(rule.theta));
}

std::vector<float> divided(const std::vector<float>& frequencies, const std::vector<double>& factors) {
  check(factors.size() == frequencies.size(), "longrope: a factor for each pair");
  std::vector<float> out(frequencies.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = frequencies[i] / static_cast<float>(factors[i]);
  return out;
}

}  // namespace

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

void scale_linear(RotaryRule& rule, double factor) {
  for (float& frequency : rule.inverse_frequencies) frequency /= static_cast<float>(factor);
}

void scale_dynamic(RotaryRule& rule, double length, double original) {
  check(rule.dims > 2, "dynamic scaling: more than one pair");
  const double longer = rule.dynamic_factor * length / original - (rule.dynamic_factor - 1);
  const double theta = rule.theta * std::pow(longer, rule.dims / (rule.dims - 2.0));
  rule.inverse_frequencies = plain_inverse_frequencies(theta, rule.dims);
}

void scale_llama3(RotaryRule& rule, const Llama3Scaling& s) {
  for (float& frequency : rule.inverse_frequencies) {
    const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequency);
    // 0 where the pair is divided, 1 where it stays.
    const double above = s.original / wavelength - s.low_frequency, width = s.high_frequency - s.low_frequency;
    const double kept = width > 0 ? std::clamp(above / width, 0.0, 1.0) : above >= 0 ? 1 : 0;
    frequency *= static_cast<float>((1 - kept) / s.factor + kept);
  }
}

void scale_yarn(RotaryRule& rule, const YarnScaling& s) {
  double low = pair_with_turns(s.beta_fast, rule, s.original);
  double high = pair_with_turns(s.beta_slow, rule, s.original);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rule.dims - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < rule.inverse_frequencies.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    rule.inverse_frequencies[i] *= static_cast<float>(divided / s.factor + (1 - divided));
  }
  rule.magnitude = static_cast<float>(s.magnitude);
}

double yarn_magnitude(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

void scale_longrope(RotaryRule& rule, const LongropeScaling& s) {
  rule.long_inverse_frequencies = divided(rule.inverse_frequencies, s.long_factors);
  rule.inverse_frequencies = divided(rule.inverse_frequencies, s.short_factors);
  rule.long_from = s.original;
  rule.magnitude = static_cast<float>(s.magnitude);
}

double longrope_magnitude(double factor, double original) {
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
}

}  // namespace kvroof
