// Cached rows as factors of the tensor cores' products (matrix_unit.cuh).
//
// Integers of up to 8 bits are exact in bf16, so rows of every type are multiplied without rounding; what meets them,
// queries and weights, is split in two factors whose sum has twice the digits.
#pragma once

#include "kernels/cuda/matrix_unit.cuh"

namespace kvroof::cuda {

// The type of the factors that rows become.
template <Stored kType>
constexpr Stored kRowFactors = kType == Stored::kF16 ? Stored::kF16 : Stored::kBF16;

// The lowest 8 bits of both halves, signed, as a pair of bf16: 128 + the lower seven bits, less 128 or, with the sign
// bit, 256. The upper bits of the halves do not matter.
KV_DEVICE std::uint32_t pair_of_bytes(std::uint32_t halves) {
  return add_bf16_pairs(masked_xor(halves, 0x007f007fU, 0x43004300U), masked_xor(halves, 0x00800080U, 0xc300c300U));
}

// The lowest 4 bits of both halves, signed: 128 + the bits with the sign bit turned, less 136.
KV_DEVICE std::uint32_t pair_of_nibbles(std::uint32_t halves) {
  return add_bf16_pairs(masked_xor(halves, 0x000f000fU, 0x43084308U), 0xc308c308U);
}

// An eight as four pairs of its own elements, in their order.
template <Stored kType>
KV_DEVICE void to_pairs(const Eight<kType>& eight, std::uint32_t (&pairs)[4]) {
  KV_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (kBits<kType> == 16) {
      pairs[i] = eight.words[i];
    } else if constexpr (kBits<kType> == 8) {
      pairs[i] = pair_of_bytes(permute_bytes(eight.words[i / 2], 0, i % 2 == 0 ? 0x1100 : 0x3322));
    } else {
      pairs[i] = pair_of_nibbles(permute_bytes(eight.words[0], eight.words[0] >> 4, 0x4400U + 0x1111U * i));
    }
  }
}

template <Stored kType>
KV_DEVICE Pack to_pack(const Eight<kType>& eight) {
  std::uint32_t pairs[4];
  to_pairs<kType>(eight, pairs);
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

// The eights of two rows as eight pairs: pair i holds element i of both.
template <Stored kType>
KV_DEVICE void to_pairs_across(const Eight<kType>& low, const Eight<kType>& high, std::uint32_t (&pairs)[8]) {
  KV_UNROLL
  for (unsigned i = 0; i < 8; ++i) {
    constexpr unsigned kOfWord = 32 / kBits<kType>;
    const std::uint32_t x = low.words[i / kOfWord];
    const std::uint32_t y = high.words[i / kOfWord];
    if constexpr (kBits<kType> == 16) {
      pairs[i] = permute_bytes(x, y, i % 2 == 0 ? 0x5410 : 0x7632);
    } else {
      const unsigned byte = i % kOfWord * kBits<kType> / 8;
      const std::uint32_t halves = permute_bytes(x, y, 0x4400U + 0x1111U * byte);
      pairs[i] = kBits<kType> == 8 ? pair_of_bytes(halves) : pair_of_nibbles(halves >> (i % 2 * 4));
    }
  }
}

// Two floats as pairs of factors whose sum is as near to them as twice a factor's digits allow.
template <Stored kFactors>
KV_DEVICE void split_pair(float low, float high, std::uint32_t& pair, std::uint32_t& rest) {
  pair = packed_pair<kFactors>(low, high);
  const float2_t rounded = pair_floats<kFactors>(pair);
  rest = packed_pair<kFactors>(low - rounded.x, high - rounded.y);
}

}  // namespace kvroof::cuda
