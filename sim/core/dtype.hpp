// Element types of tensors, their sizes and exact conversions to and from float.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace kvroof {

enum class DType : std::uint8_t {
  kF32, kF16, kBF16, kF64, kI64, kI32, kI16, kI8, kU64, kU32, kU16, kU8, kBool, kF8E4M3,
};

// Bytes of one element.
constexpr std::uint64_t size_of(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64: return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32: return 4;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16: return 2;
    default: return 1;
  }
}

// "f32", "bf16", ... as options and reports spell them.
std::string_view name_of(DType t);
// "F32", "BF16", ... as safetensors headers spell them.
std::string_view safetensors_name_of(DType t);
// Accepts "f32", "float32", "F32", "bf16", "bfloat16", "fp16", "half", "torch.bfloat16", ...
std::optional<DType> parse_dtype(std::string_view text);

// bf16 is the upper half of a float; rounding is to nearest, ties to even. NaN stays NaN.
constexpr float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
constexpr std::uint16_t float_to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((u >> 16) | 0x40U);
  return static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16);
}
float f16_to_float(std::uint16_t bits);
// 1 bit of sign, 4 of exponent, 3 of mantissa; the largest number is 448, and no pattern is infinite (OCP FP8, E4M3).
constexpr float f8_e4m3_to_float(std::uint8_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80U) << 24;
  const std::uint32_t magnitude = bits & 0x7fU;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000U);
  if (magnitude < 8) {  // subnormal: steps of 2^-9
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-9F));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + ((127U - 7U) << 23)));
}
std::uint16_t float_to_f16(float x);

// Rounds x through the type and back: what a cache of that type holds.
float round_to(DType t, float x);

// Converts `count` elements of type t (f32, f16, bf16, f8_e4m3) at `from` into floats.
void convert_to_float(DType t, const void* from, std::span<float> to);
// Converts floats into elements of type t (f32, f16, bf16) at `to`.
void convert_from_float(DType t, std::span<const float> from, void* to);

}  // namespace kvroof
