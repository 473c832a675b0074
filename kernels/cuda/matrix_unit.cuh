// One product of the tensor cores: C [16, 8] += A [16, 16] · B [16, 8], 16-bit factors, float sums.
//
// Lane l of a warp holds of A, with r = l / 4 and c = l mod 4, the pairs of columns (2c, 2c + 1) and (2c + 8, 2c + 9)
// of rows r and r + 8: {r low, r + 8 low, r high, r + 8 high}; of B the same pairs of rows of column r; of C the
// columns (2c, 2c + 1) of rows r and r + 8 (PTX ISA, mma.m16n8k16).
#pragma once

#include "kernels/cuda/numbers.cuh"

namespace kvroof::cuda {

constexpr float kLargestF16 = 65504.0F;

// Two factors of a pair as floats.
template <Stored kType>
KV_DEVICE float2_t pair_floats(std::uint32_t pair) {
  if constexpr (kType == Stored::kBF16) return {float_of(pair << 16), float_of(pair & 0xffff0000U)};
  return {half_to_float(static_cast<std::uint16_t>(pair)), half_to_float(static_cast<std::uint16_t>(pair >> 16))};
}

#if defined(__CUDACC__)

template <Stored kType>
KV_DEVICE void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (kType == Stored::kBF16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

// Two floats as a pair of stored elements, rounded to nearest even.
template <Stored kType>
KV_DEVICE std::uint32_t packed_pair(float low, float high) {
  std::uint32_t pair;  // the first source becomes the upper half (PTX ISA, cvt)
  if constexpr (kType == Stored::kBF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// Sums of two pairs of bf16, each rounded to nearest even; the product with one is what compute capability 8.0 has.
KV_DEVICE std::uint32_t add_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80U), "r"(b));
  return sum;
}

// a · factor + b of pairs of f16, rounded once.
KV_DEVICE std::uint32_t fma_f16_pairs(std::uint32_t a, std::uint32_t factor, std::uint32_t b) {
  std::uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(factor), "r"(b));
  return sum;
}

#else

// Each lane computes its own four sums from the factors of all lanes.
template <Stored kType>
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                  Place place = Place::current()) {
  const float2_t held[6] = {pair_floats<kType>(a[0]), pair_floats<kType>(a[1]), pair_floats<kType>(a[2]),
                            pair_floats<kType>(a[3]), pair_floats<kType>(b[0]), pair_floats<kType>(b[1])};
  const unsigned lane = thread_x() % 32;
  emulator::exchange_all(held, sizeof held, [&](const std::byte* lanes) {
    const auto pair = [&](unsigned l, unsigned i) {
      return reinterpret_cast<const float2_t*>(lanes + l * emulator::kLargestExchange)[i];
    };
    for (unsigned out = 0; out < 4; ++out) {
      const unsigned row = lane / 4 * 4;
      const unsigned column = (lane % 4 * 2 + out % 2) * 4;
      for (unsigned k = 0; k < 8; ++k) {
        const float2_t left = pair(row + k % 4, k / 4 * 2 + out / 2);
        const float2_t right = pair(column + k % 4, 4 + k / 4);
        c[out] += left.x * right.x;
        c[out] += left.y * right.y;
      }
    }
  }, place);
}

template <Stored kType>
std::uint32_t packed_pair(float low, float high) {
  const std::uint32_t first = kType == Stored::kBF16 ? float_to_bf16(low) : float_to_half(low);
  const std::uint32_t second = kType == Stored::kBF16 ? float_to_bf16(high) : float_to_half(high);
  return first | second << 16;
}

inline std::uint32_t add_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  const float2_t x = pair_floats<Stored::kBF16>(a);
  const float2_t y = pair_floats<Stored::kBF16>(b);
  return packed_pair<Stored::kBF16>(x.x + y.x, x.y + y.y);
}

inline std::uint32_t fma_f16_pairs(std::uint32_t a, std::uint32_t factor, std::uint32_t b) {
  const float2_t x = pair_floats<Stored::kF16>(a);
  const float2_t f = pair_floats<Stored::kF16>(factor);
  const float2_t y = pair_floats<Stored::kF16>(b);
  return packed_pair<Stored::kF16>(x.x * f.x + y.x, x.y * f.y + y.y);
}

#endif

// Eight floats as 16 bytes of stored elements.
template <Stored kType>
KV_DEVICE Pack packed_eight(const float (&x)[8]) {
  return {packed_pair<kType>(x[0], x[1]), packed_pair<kType>(x[2], x[3]), packed_pair<kType>(x[4], x[5]),
          packed_pair<kType>(x[6], x[7])};
}

}  // namespace kvroof::cuda
