// MXFP4 (OCP Microscaling Formats 1.0): 32 numbers of four bits, 1 of sign, 2 of exponent and 1 of mantissa, that share
// a power of two. Two lie in a byte, the first in its lower half.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvroof {

inline constexpr std::size_t kMxfp4Block = 32;  // numbers that share a scale

// The numbers of codes[i / 2] and scales[i / 32]; out.size() is a multiple of kMxfp4Block. A scale s is 2^(s − 127).
inline void unpack_mxfp4(const std::byte* codes, const std::byte* scales, std::span<float> out) {
  constexpr std::array<float, 16> kNumbers = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  for (std::size_t first = 0; first < out.size(); first += kMxfp4Block) {
    const float scale = std::ldexp(1.0F, std::to_integer<int>(scales[first / kMxfp4Block]) - 127);
    for (std::size_t i = first; i < first + kMxfp4Block; i += 2) {
      const auto pair = std::to_integer<std::uint8_t>(codes[i / 2]);
      out[i] = kNumbers[pair % 16] * scale;
      out[i + 1] = kNumbers[pair / 16] * scale;
    }
  }
}

}  // namespace kvroof
