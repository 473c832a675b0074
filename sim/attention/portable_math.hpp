// The constants and scalar forms of the exponential and the hyperbolic tangent, and the fold of interleaved
// sums, that every code path here shares.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvroof::portable {

// e^x = 2^n · e^r with n = round(x / ln 2) and |r| ≤ ln 2 / 2; e^r = 1 + r + r² · P(r), P of degree 5 (Cephes' expf,
// Moshier). ln 2 is split so that n · kLn2High is exact.
inline constexpr float kLog2E = 1.44269504088896341F;
inline constexpr float kLn2High = 0.693359375F;
inline constexpr float kLn2Low = -2.12194440e-4F;
inline constexpr float kExp5 = 1.9875691500e-4F;
inline constexpr float kExp4 = 1.3981999507e-3F;
inline constexpr float kExp3 = 8.3334519073e-3F;
inline constexpr float kExp2 = 4.1665795894e-2F;
inline constexpr float kExp1 = 1.6666665459e-1F;
inline constexpr float kExp0 = 5.0000001201e-1F;
// Adding 1.5 · 2^23 rounds to an integer, which is then in the low bits of the sum.
inline constexpr float kRound = 12582912.0F;
inline constexpr float kExpLowest = -87.0F;  // below it the result is 0, so that no result is subnormal

// e^r of x = n · ln 2 + r, where n = shifted − kRound.
inline float exp_of_rest(float x, float shifted) {
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = kExp5;
  p = p * r + kExp4;
  p = p * r + kExp3;
  p = p * r + kExp2;
  p = p * r + kExp1;
  p = p * r + kExp0;
  return (p * (r * r) + r) + 1.0F;
}

inline float exp_of_negative(float x) {
  if (!(x >= kExpLowest)) return 0;
  const float shifted = x * kLog2E + kRound;
  return exp_of_rest(x, shifted) * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127U) << 23);
}

// round(x / ln 2) + kRound, for |x| ≤ 2^21.
inline float shifted_exponent(float x) { return x * kLog2E + kRound; }

// Powers of two below the reference's that exp_over still tells from 0.
inline constexpr float kExpRange = 125;

// e^x / 2^n, where `reference` is shifted_exponent of an x' ≥ x and n its round(x' / ln 2). All digits are those of e^x
// alone; the reference moves the exponent and nothing else. 0 where that is below −kExpRange.
inline float exp_over(float x, float reference) {
  const float shifted = shifted_exponent(x);
  if (!(shifted >= reference - kExpRange)) return 0;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(reference) + 127U;
  return exp_of_rest(x, shifted) * std::bit_cast<float>(exponent << 23);
}

// The upper half of the lanes is added to the lower, and so on; their number is a power of two.
template <std::size_t kCount>
float fold_by_halves(std::array<float, kCount> lanes) {
  for (std::size_t half = kCount / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  }
  return lanes[0];
}

// (1 − e^−2|x|) / (1 + e^−2|x|) with the sign of x; absolute error below 2e-7.
inline float tanh(float x) {
  const float e = exp_of_negative(x < 0 ? 2 * x : -2 * x);
  const float t = (1 - e) / (1 + e);
  return x < 0 ? -t : t;
}

}  // namespace kvroof::portable
