// MXFP4 (OCP Microscaling Formats 1.0): 32 numbers of four bits, 1 of sign, 2 of exponent and 1 of mantissa, that share
// a power of two. Two lie in a byte, the first in its lower half.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvroof {

// The numbers of codes[i / 2], before they are scaled; out.size() is even.
inline void unpack_mxfp4(const std::byte* codes, std::span<float> out) {
  constexpr std::array<float, 16> kNumbers = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
  for (std::size_t i = 0; i < out.size(); i += 2) {
    const auto pair = std::to_integer<std::uint8_t>(codes[i / 2]);
    out[i] = kNumbers[pair % 16];
    out[i + 1] = kNumbers[pair / 16];
  }
}

// E8M0: 2^(scale − 127).
inline float mxfp4_scale(std::byte scale) { return std::ldexp(1.0F, std::to_integer<int>(scale) - 127); }

}  // namespace kvroof
