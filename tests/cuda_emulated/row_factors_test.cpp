#include "kernels/cuda/row_factors.cuh"

#include <algorithm>
#include <array>

#include "tests/catch.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

// Eight integers as they lie in a row.
template <Stored kType>
Eight<kType> stored(const std::array<int, 8>& values) {
  Eight<kType> out = {};
  constexpr unsigned kOfWord = 32 / kBits<kType>;
  for (unsigned i = 0; i < 8; ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(values[i]) & ((1U << kBits<kType>) - 1);
    out.words[i / kOfWord] |= bits << (i % kOfWord * kBits<kType>);
  }
  return out;
}

// `step` apart, so that neighbours differ in sign and in every bit.
template <Stored kType>
std::array<int, 8> integers_from(int first, int step) {
  constexpr int kCount = 1 << kBits<kType>;
  std::array<int, 8> out = {};
  for (int i = 0; i < 8; ++i) out[static_cast<unsigned>(i)] = (first + i * step) % kCount - kCount / 2;
  return out;
}

template <Stored kType>
void check_integers() {
  for (int first = 0; first < 1 << kBits<kType>; ++first) {
    const std::array<int, 8> low = integers_from<kType>(first, 7);
    const std::array<int, 8> high = integers_from<kType>(first, 11);
    std::uint32_t own[4];
    to_pairs<kType>(stored<kType>(low), own);
    for (unsigned p = 0; p < 4; ++p) {
      const float2_t pair = pair_floats<kRowFactors<kType>>(own[p]);
      CHECK(pair.x == static_cast<float>(low[2 * p]));
      CHECK(pair.y == static_cast<float>(low[2 * p + 1]));
    }
    std::uint32_t across[8];
    to_pairs_across<kType>(stored<kType>(low), stored<kType>(high), across);
    for (unsigned i = 0; i < 8; ++i) {
      const float2_t pair = pair_floats<kRowFactors<kType>>(across[i]);
      CHECK(pair.x == static_cast<float>(low[i]));
      CHECK(pair.y == static_cast<float>(high[i]));
    }
    to_decode_pairs<kType>(stored<kType>(low), own);
    for (unsigned p = 0; p < 4; ++p) {
      const float2_t pair = pair_floats<kDecodeFactors<kType>>(own[p]);
      CHECK(pair.x == static_cast<float>(low[first_of_pair<kType>(p)]));
      CHECK(pair.y == static_cast<float>(low[first_of_pair<kType>(p) + kPairStep<kType>]));
    }
    to_decode_pairs_across<kType>(stored<kType>(low), stored<kType>(high), across);
    for (unsigned i = 0; i < 8; ++i) {
      const float2_t pair = pair_floats<kDecodeFactors<kType>>(across[i]);
      CHECK(pair.x == static_cast<float>(low[i]));
      CHECK(pair.y == static_cast<float>(high[i]));
    }
  }
}

}  // namespace

TEST_CASE("every int8 and int4 is the same number as a factor, wherever in a row it lies") {
  check_integers<Stored::kInt8>();
  check_integers<Stored::kInt4>();
}

TEST_CASE("two bf16 factors hold sixteen binary digits of a float and two f16 factors twenty-one") {
  for (const float x : {1.0F, 0.3333333F, -123.4567F, 7.654e-3F, 2047.7F}) {
    std::uint32_t pair = 0;
    std::uint32_t rest = 0;
    split_pair<Stored::kBF16>(x, 0, pair, rest);
    CHECK(std::abs(pair_floats<Stored::kBF16>(pair).x + pair_floats<Stored::kBF16>(rest).x - x) <=
          std::abs(x) * 0x1p-16F);
    split_pair<Stored::kF16>(0, x, pair, rest);
    CHECK(std::abs(pair_floats<Stored::kF16>(pair).y + pair_floats<Stored::kF16>(rest).y - x) <=
          std::max(std::abs(x) * 0x1p-21F, 0x1p-25F));  // half of the least f16
  }
}
