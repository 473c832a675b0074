// Gumbel noise that is bit-equal on CPU and GPU: a logarithm of additions and multiplications only.
#pragma once

#include <bit>
#include <cstdint>

#include "sim/core/philox.hpp"

namespace kvroof {

#if defined(__CUDA_ARCH__)
// nvcc would contract a·b + c to fma; these intrinsics round each operation by itself, as the host does.
__device__ inline float exact_mul(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float exact_add(float a, float b) { return __fadd_rn(a, b); }
__device__ inline std::uint32_t float_bits(float x) { return __float_as_uint(x); }
__device__ inline float bits_float(std::uint32_t x) { return __uint_as_float(x); }
#else
inline float exact_mul(float a, float b) { return a * b; }
inline float exact_add(float a, float b) { return a + b; }
inline std::uint32_t float_bits(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float bits_float(std::uint32_t x) { return std::bit_cast<float>(x); }
#endif

// Natural logarithm of a positive, normal, finite float; error below 2 ulp away from 1 and 2^-24 absolute near it.
// Range reduction to [√½, √2) and the degree-9 minimax polynomial of Cephes' logf (Moshier).
KVROOF_HD inline float portable_log(float x) {
  std::uint32_t u = float_bits(x);
  auto e = static_cast<std::int32_t>(u >> 23) - 126;
  float m = bits_float((u & 0x007fffffU) | 0x3f000000U);  // in [0.5, 1)
  if (m < 0.707106781186547524F) {
    e -= 1;
    m = exact_add(m, m);
  }
  m = exact_add(m, -1.0F);
  const float z = exact_mul(m, m);
  float p = 7.0376836292e-2F;
  p = exact_add(exact_mul(p, m), -1.1514610310e-1F);
  p = exact_add(exact_mul(p, m), 1.1676998740e-1F);
  p = exact_add(exact_mul(p, m), -1.2420140846e-1F);
  p = exact_add(exact_mul(p, m), 1.4249322787e-1F);
  p = exact_add(exact_mul(p, m), -1.6668057665e-1F);
  p = exact_add(exact_mul(p, m), 2.0000714765e-1F);
  p = exact_add(exact_mul(p, m), -2.4999993993e-1F);
  p = exact_add(exact_mul(p, m), 3.3333331174e-1F);
  float y = exact_mul(exact_mul(p, m), z);
  const auto fe = static_cast<float>(e);
  y = exact_add(y, exact_mul(fe, -2.12194440e-4F));
  y = exact_add(y, exact_mul(-0.5F, z));
  y = exact_add(m, y);
  return exact_add(y, exact_mul(fe, 0.693359375F));
}

// Where a draw belongs. Equal keys give equal draws, on every machine and for any number of threads.
struct NoiseKey {
  std::uint64_t seed = 0;
  std::uint32_t sequence = 0;
  std::uint32_t layer = 0;
  std::uint32_t query_head = 0;
  std::uint32_t position = 0;
  std::uint32_t query_position = 0xffffffffU;  // all ones: one draw per token, whatever the query
};

KVROOF_HD inline float uniform_draw(const NoiseKey& key) {
  const Philox4 counter{{key.position, key.query_position, (key.layer << 16) ^ key.query_head, key.sequence}};
  return uniform_open(philox4x32_10(counter, key.seed).x[0]);
}

// A draw of the standard Gumbel distribution (location 0, scale 1): −ln(−ln u). Between −2.8 and 16.7.
KVROOF_HD inline float gumbel_draw(const NoiseKey& key) {
  return -portable_log(-portable_log(uniform_draw(key)));
}

}  // namespace kvroof
