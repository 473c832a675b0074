// Counter-based random numbers (Philox4x32-10, Salmon et al., SC'11): the same bits on every host and device.
#pragma once

#include <array>
#include <cstdint>

#if defined(__CUDACC__)
#define KVROOF_HD __host__ __device__
#else
#define KVROOF_HD
#endif

namespace kvroof {

struct Philox4 {
  std::uint32_t x[4];
};

// Ten rounds of Philox4x32 over a 128-bit counter with a 64-bit key.
KVROOF_HD constexpr Philox4 philox4x32_10(Philox4 counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * counter.x[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * counter.x[2];
    const auto hi0 = static_cast<std::uint32_t>(p0 >> 32);
    const auto lo0 = static_cast<std::uint32_t>(p0);
    const auto hi1 = static_cast<std::uint32_t>(p1 >> 32);
    const auto lo1 = static_cast<std::uint32_t>(p1);
    counter = Philox4{{hi1 ^ counter.x[1] ^ k0, lo1, hi0 ^ counter.x[3] ^ k1, lo0}};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

// (23 bits + 0.5) · 2^-23: exact in float and never 0 or 1.
KVROOF_HD constexpr float uniform_open(std::uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5F) * 0x1p-23F;
}

}  // namespace kvroof
