// Weights that nobody trained, made from a seed alone: the same numbers on every host and device.
#pragma once

#include <cstdint>

#include "sim/core/philox.hpp"

namespace kvroof {

// Element i of a weight is centre + spread · u, u uniform in (−1, 1): 16 bits of Philox, keyed by seed and stream.
struct RandomFill {
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;  // of the weight within its model
  float centre = 0;
  float spread = 0;
};

// Elements 8 · block … 8 · block + 7.
KVROOF_HD inline void random_eight(const RandomFill& fill, std::uint64_t block, float (&out)[8]) {
  const Philox4 bits = philox4x32_10(
      {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), fill.stream, 0x77656967U}},
      fill.seed);
  for (unsigned i = 0; i < 8; ++i) {
    const std::uint32_t sixteen = bits.x[i / 2] >> (16 * (i % 2)) & 0xffffU;
    out[i] = fill.centre + fill.spread * (static_cast<float>(sixteen) - 32767.5F) / 32768.0F;
  }
}

}  // namespace kvroof
