// The constants and scalar forms of the exponential and the hyperbolic tangent that every code path here shares.
#pragma once

#include <bit>
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

inline float exp_of_negative(float x) {
  if (!(x >= kExpLowest)) return 0;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = kExp5;
  p = p * r + kExp4;
  p = p * r + kExp3;
  p = p * r + kExp2;
  p = p * r + kExp1;
  p = p * r + kExp0;
  const float y = (p * (r * r) + r) + 1.0F;
  return y * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127U) << 23);
}

// (1 − e^−2|x|) / (1 + e^−2|x|) with the sign of x; absolute error below 2e-7.
inline float tanh(float x) {
  const float e = exp_of_negative(x < 0 ? 2 * x : -2 * x);
  const float t = (1 - e) / (1 + e);
  return x < 0 ? -t : t;
}

}  // namespace kvroof::portable
