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

// The elements of an eight that pair i holds, low and high: where integers lie a whole number of halves apart, so that
// a mask parts them from their neighbours. A sum over a row's elements may take them in any order.
template <Stored kType>
KV_DEVICE constexpr unsigned low_of_pair(unsigned i) {
  return kBits<kType> == 16 ? 2 * i : kBits<kType> == 8 ? i / 2 * 4 + i % 2 : i;
}
template <Stored kType>
KV_DEVICE constexpr unsigned high_of_pair(unsigned i) {
  return low_of_pair<kType>(i) + (kBits<kType> == 16 ? 1 : kBits<kType> == 8 ? 2 : 4);
}

// The lowest 8 bits of both halves, signed, as a pair of bf16: 128 + the lower seven bits, less 128 or, with the sign
// bit, 256. The upper bits of the halves do not matter.
KV_DEVICE std::uint32_t pair_of_bytes(std::uint32_t halves) {
  return add_bf16_pairs(masked_or(halves, 0x007f007fU, 0x43004300U), masked_or(halves, 0x00800080U, 0xc300c300U));
}

// The lowest 4 bits of both halves, signed and with the sign bit turned: 128 + bits, less 136.
KV_DEVICE std::uint32_t pair_of_nibbles(std::uint32_t halves) {
  return add_bf16_pairs(masked_or(halves, 0x000f000fU, 0x43004300U), 0xc308c308U);
}
constexpr std::uint32_t kNibbleSigns = 0x88888888U;

// An eight as four pairs of its own elements.
template <Stored kType>
KV_DEVICE void to_pairs(const Eight<kType>& eight, std::uint32_t (&pairs)[4]) {
  const std::uint32_t turned = kBits<kType> == 4 ? eight.words[0] ^ kNibbleSigns : 0;
  KV_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (kBits<kType> == 16) {
      pairs[i] = eight.words[i];
    } else if constexpr (kBits<kType> == 8) {
      pairs[i] = pair_of_bytes(eight.words[i / 2] >> (i % 2 * 8));
    } else {
      pairs[i] = pair_of_nibbles(turned >> (i * 4));
    }
  }
}

// The eights of two rows as eight pairs: pair i holds element i of both.
template <Stored kType>
KV_DEVICE void to_pairs_across(const Eight<kType>& low, const Eight<kType>& high, std::uint32_t (&pairs)[8]) {
  const std::uint32_t signs = kBits<kType> == 4 ? kNibbleSigns : 0;
  KV_UNROLL
  for (unsigned i = 0; i < 8; ++i) {
    constexpr unsigned kOfWord = 32 / kBits<kType>;
    const std::uint32_t x = low.words[i / kOfWord] ^ signs;
    const std::uint32_t y = high.words[i / kOfWord] ^ signs;
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
