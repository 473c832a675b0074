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

// While one query meets each row, what making factors takes is seen: integers are cheaper made f16, where a number from
// 1024 on has a unit as its last bit. That of the other types' rows is their own.
template <Stored kType>
constexpr Stored kDecodeFactors = kType == Stored::kBF16 ? Stored::kBF16 : Stored::kF16;

constexpr std::uint32_t kOneHalves = 0x3c003c00U, kSixteenthHalves = 0x2c002c00U;  // 1 and 1/16

// Bytes `which` of bytes, 128 more than they mean, as a pair of f16: 1024 + the byte, less 1152.
KV_DEVICE std::uint32_t f16_of_bytes(std::uint32_t bytes, std::uint32_t which) {
  return fma_f16_pairs(permute_bytes(bytes, 0x64646464U, which), kOneHalves, 0xe480e480U);
}
// The lowest 4 bits of both halves, signed, or the next 4: 1024 + the bits with the sign bit turned, less 1032, or 1024
// + 16 times those, a sixteenth of it less 72.
KV_DEVICE std::uint32_t f16_of_nibbles(std::uint32_t halves, bool upper) {
  if (upper) return fma_f16_pairs(masked_xor(halves, 0x00f000f0U, 0x64806480U), kSixteenthHalves, 0xd480d480U);
  return fma_f16_pairs(masked_xor(halves, 0x000f000fU, 0x64086408U), kOneHalves, 0xe408e408U);
}

// Of an eight of keys the elements that are its p-th pair: pairs of int4 are four apart, where no byte is moved.
template <Stored kType>
constexpr unsigned kPairStep = kType == Stored::kInt4 ? 4 : 1;
template <Stored kType>
KV_DEVICE unsigned first_of_pair(unsigned p) { return kType == Stored::kInt4 ? p : 2 * p; }

template <Stored kType>
KV_DEVICE void to_decode_pairs(const Eight<kType>& eight, std::uint32_t (&pairs)[4]) {
  if constexpr (kBits<kType> == 16) {
    to_pairs<kType>(eight, pairs);
  } else if constexpr (kType == Stored::kInt8) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      pairs[i] = f16_of_bytes(eight.words[i / 2] ^ 0x80808080U, i % 2 == 0 ? 0x4140 : 0x4342);
    }
  } else {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) pairs[i] = f16_of_nibbles(eight.words[0] >> (i / 2 * 8), i % 2 == 1);
  }
}

// The eights of two rows as eight pairs: pair i holds element i of both.
template <Stored kType>
KV_DEVICE void to_decode_pairs_across(const Eight<kType>& low, const Eight<kType>& high, std::uint32_t (&pairs)[8]) {
  if constexpr (kBits<kType> == 16) {
    to_pairs_across<kType>(low, high, pairs);
  } else if constexpr (kType == Stored::kInt8) {
    KV_UNROLL
    for (unsigned i = 0; i < 8; i += 2) {  // bytes i and i + 1 of both, then a pair of each
      const std::uint32_t bytes =
          permute_bytes(low.words[i / 4], high.words[i / 4], i % 4 == 0 ? 0x5140 : 0x7362) ^ 0x80808080U;
      pairs[i] = f16_of_bytes(bytes, 0x4140);
      pairs[i + 1] = f16_of_bytes(bytes, 0x4342);
    }
  } else {
    KV_UNROLL
    for (unsigned i = 0; i < 8; ++i) {
      const std::uint32_t halves = permute_bytes(low.words[0], high.words[0], 0x4400U + 0x1111U * (i / 2));
      pairs[i] = f16_of_nibbles(halves, i % 2 == 1);
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
