#include "sim/core/dtype.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

// The value of an IEEE 754 number with 5 exponent and 10 mantissa bits, from its definition.
double value_of_half(std::uint32_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const auto exponent = static_cast<int>((bits >> 10) & 31U);
  const auto mantissa = static_cast<int>(bits & 0x3ffU);
  if (exponent == 31) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

}  // namespace

TEST_CASE("each of the 65,536 half values converts to float exactly and back to the same bits") {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = value_of_half(bits);
    const float got = f16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(expected)) {
      wrong += std::isnan(got) && std::isnan(f16_to_float(float_to_f16(got))) ? 0 : 1;
      continue;
    }
    const bool same = static_cast<double>(got) == expected && std::signbit(got) == ((bits & 0x8000U) != 0);
    wrong += same && float_to_f16(got) == bits ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a float between two halves rounds to the nearer one, and to the even one from the middle") {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto middle = static_cast<float>((value_of_half(bits) + value_of_half(bits + 1)) / 2);
    const std::uint32_t even = bits + (bits & 1U);
    wrong += float_to_f16(middle) == even ? 0 : 1;
    wrong += float_to_f16(std::nextafter(middle, 0.0F)) == bits ? 0 : 1;
    wrong += float_to_f16(std::nextafter(middle, 1e9F)) == bits + 1 ? 0 : 1;
    wrong += float_to_f16(-middle) == (even | 0x8000U) ? 0 : 1;
  }
  CHECK(wrong == 0);
  CHECK(float_to_f16(65519.0F) == 0x7bff);
  CHECK(float_to_f16(65520.0F) == 0x7c00);
  CHECK(float_to_f16(1e30F) == 0x7c00);
}

TEST_CASE("each of the 65,536 bfloat16 values is the upper half of its float, and rounding goes to nearest even") {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(x)) {
      wrong += std::isnan(bf16_to_float(float_to_bf16(x))) ? 0 : 1;
      continue;
    }
    wrong += std::bit_cast<std::uint32_t>(x) == bits << 16 && float_to_bf16(x) == bits ? 0 : 1;
    if (std::isinf(x)) continue;
    const std::uint32_t even = bits + (bits & 1U);
    wrong += float_to_bf16(std::bit_cast<float>(bits << 16 | 0x8000U)) == even ? 0 : 1;
    wrong += float_to_bf16(std::bit_cast<float>(bits << 16 | 0x7fffU)) == bits ? 0 : 1;
    wrong += float_to_bf16(std::bit_cast<float>(bits << 16 | 0x8001U)) == bits + 1 ? 0 : 1;
  }
  CHECK(wrong == 0);
}

// Table 1 of OCP 8-bit Floating Point Specification 1.0.
TEST_CASE("E4M3 reaches from 2^-9 to 448 in steps of an eighth of a power of two, and knows no infinity") {
  CHECK(f8_e4m3_to_float(0x7e) == 448);
  CHECK(f8_e4m3_to_float(0x38) == 1);
  CHECK(f8_e4m3_to_float(0x08) == std::ldexp(1.0F, -6));   // the smallest normal one
  CHECK(f8_e4m3_to_float(0x07) == std::ldexp(0.875F, -6));  // the largest subnormal one
  CHECK(f8_e4m3_to_float(0x01) == std::ldexp(1.0F, -9));
  CHECK((std::isnan(f8_e4m3_to_float(0x7f)) && std::isnan(f8_e4m3_to_float(0xff))));
  CHECK((f8_e4m3_to_float(0x80) == 0 && std::signbit(f8_e4m3_to_float(0x80))));
  for (int bits = 8; bits < 0x7f; ++bits) {
    const float number = std::ldexp(1 + static_cast<float>(bits % 8) / 8, bits / 8 - 7);
    CHECK(f8_e4m3_to_float(static_cast<std::uint8_t>(bits)) == number);
    CHECK(f8_e4m3_to_float(static_cast<std::uint8_t>(bits | 0x80)) == -number);
  }
  const std::vector<std::uint8_t> stored = {0x7e, 0xb8};
  std::vector<float> numbers(2);
  convert_to_float(DType::kF8E4M3, stored.data(), numbers);
  CHECK(numbers == std::vector<float>{448, -1});
  CHECK(parse_dtype("F8_E4M3") == DType::kF8E4M3);
  CHECK(size_of(DType::kF8E4M3) == 1);
}

TEST_CASE("type names of options, safetensors and PyTorch are understood, others are not") {
  CHECK(parse_dtype("bf16") == DType::kBF16);
  CHECK(parse_dtype("BF16") == DType::kBF16);
  CHECK(parse_dtype("torch.bfloat16") == DType::kBF16);
  CHECK(parse_dtype("half") == DType::kF16);
  CHECK(parse_dtype("float32") == DType::kF32);
  CHECK_FALSE(parse_dtype("float33").has_value());
  CHECK(name_of(DType::kBF16) == "bf16");
  CHECK(safetensors_name_of(DType::kI64) == "I64");
}

TEST_CASE("arrays convert element by element") {
  const std::vector<float> from = {1.0F, -2.5F, 0.1F};
  std::vector<std::uint16_t> bits(3);
  std::vector<float> to(3);
  convert_from_float(DType::kBF16, from, bits.data());
  convert_to_float(DType::kBF16, bits.data(), to);
  CHECK(to == std::vector<float>{1.0F, -2.5F, round_to(DType::kBF16, 0.1F)});
  CHECK(round_to(DType::kF32, 0.1F) == 0.1F);
}
