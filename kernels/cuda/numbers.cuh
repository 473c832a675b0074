// Eight stored elements as floats, whatever their type, and what the lanes of a warp and the threads of a block have in
// all: sums, the highest, the lowest.
#pragma once

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/device.cuh"

namespace kvroof::cuda {

// cap · tanh(x / cap), within 1e-6 of cap.
KV_DEVICE float soft_capped(float x, float cap) {
  return cap - ratio_of(2.0F * cap, exp_of(ratio_of(2.0F * x, cap)) + 1.0F);
}

// Bits of one stored element.
template <Stored kType>
constexpr unsigned kBits = kType == Stored::kInt8 ? 8 : kType == Stored::kInt4 ? 4 : 16;

KV_DEVICE float bf16_to_float(std::uint32_t bits) { return float_of(bits << 16); }

// Round to nearest even; a NaN stays one.
KV_DEVICE std::uint16_t float_to_bf16(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

// Eight elements as they lie in memory: 16 bytes of 16-bit types, 8 of int8, 4 of int4.
template <Stored kType>
struct Eight {
  std::uint32_t words[kBits<kType> / 4];
};

// Reads 4, 8 or 16 aligned bytes at once; kShared: other blocks read them as well, and should find them in the
// second-level cache.
template <bool kShared, unsigned kWords>
KV_DEVICE void load_words(const std::byte* place, std::uint32_t (&out)[kWords]) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4);
  if constexpr (kWords == 4) {
    const Pack* at = reinterpret_cast<const Pack*>(place);
    const Pack pack = kShared ? load_pack(at) : load_once(at);
    out[0] = pack.x;
    out[1] = pack.y;
    out[2] = pack.z;
    out[3] = pack.w;
  } else if constexpr (kWords == 2) {
    const Pair* at = reinterpret_cast<const Pair*>(place);
    const Pair pair = kShared ? load_pair(at) : load_once(at);
    out[0] = pair.x;
    out[1] = pair.y;
  } else {
    const auto* at = reinterpret_cast<const std::uint32_t*>(place);
    out[0] = kShared ? *at : load_once(at);
  }
}

// Reads elements [8 · index, 8 · index + 8) of a row that starts at `row`.
template <Stored kType, bool kShared = false>
KV_DEVICE Eight<kType> load_eight(const std::byte* row, unsigned index) {
  Eight<kType> out;
  load_words<kShared>(row + std::size_t{index} * kBits<kType>, out.words);
  return out;
}

// int8 and int4 are signed, in units of the row's scale; the scale is the caller's to apply.
template <Stored kType>
KV_DEVICE void to_floats(const Eight<kType>& eight, float (&out)[8]) {
  KV_UNROLL
  for (unsigned i = 0; i < 8; ++i) {
    if constexpr (kType == Stored::kBF16) {
      const std::uint32_t word = eight.words[i / 2];
      out[i] = i % 2 == 0 ? float_of(word << 16) : float_of(word & 0xffff0000U);
    } else if constexpr (kType == Stored::kF16) {
      out[i] = half_to_float(static_cast<std::uint16_t>(eight.words[i / 2] >> (i % 2 * 16)));
    } else if constexpr (kType == Stored::kInt8) {
      out[i] = static_cast<float>(static_cast<std::int8_t>(eight.words[i / 4] >> (i % 4 * 8)));
    } else {
      // Sign extension by two shifts.
      out[i] = static_cast<float>(static_cast<std::int32_t>(eight.words[0] << (28 - i * 4)) >> 28);
    }
  }
}

// Eight neighbouring floats; x is aligned to 16 bytes.
KV_DEVICE void load_floats(const float* x, float (&out)[8]) {
  const Pack low = load_pack(x);
  const Pack high = load_pack(x + 4);
  const std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  KV_UNROLL
  for (unsigned i = 0; i < 8; ++i) out[i] = float_of(words[i]);
}

// The sum over groups of `width` neighbouring lanes (a power of two), in every lane.
KV_DEVICE float sum_over(float x, unsigned width) {
  for (unsigned mask = width / 2; mask > 0; mask /= 2) x += from_lane_xor(x, mask);
  return x;
}

KV_DEVICE float max_over(float x, unsigned width) {
  for (unsigned mask = width / 2; mask > 0; mask /= 2) {
    const float other = from_lane_xor(x, mask);
    x = other > x ? other : x;
  }
  return x;
}

// Floats in the order of unsigned numbers.
KV_DEVICE std::uint32_t ordered_bits(float x) {
  const std::uint32_t bits = bits_of(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

// The sum of a value over the block, in every thread; `scratch` has a place for each warp.
KV_DEVICE float block_sum(float x, float* scratch) {
  x = sum_over(x, 32);
  sync_block();
  if (thread_x() % 32 == 0) scratch[thread_x() / 32] = x;
  sync_block();
  float total = 0;
  for (unsigned w = 0; w < threads_x() / 32; ++w) total += scratch[w];
  return total;
}

KV_DEVICE std::uint64_t lowest_over_warp(std::uint64_t key) {
  for (unsigned mask = 16; mask > 0; mask /= 2) {
    const std::uint64_t other = from_lane_xor(key, mask);
    key = other < key ? other : key;
  }
  return key;
}

// The least key of the block, in every thread; `scratch` has a place for each warp.
KV_DEVICE std::uint64_t lowest_over_block(std::uint64_t key, std::uint64_t* scratch) {
  key = lowest_over_warp(key);
  sync_block();
  if (thread_x() % 32 == 0) scratch[thread_x() / 32] = key;
  sync_block();
  for (unsigned w = 0; w < threads_x() / 32; ++w) key = scratch[w] < key ? scratch[w] : key;
  return key;
}

}  // namespace kvroof::cuda
