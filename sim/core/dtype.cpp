#include "sim/core/dtype.hpp"

#include <array>
#include <cstring>
#include <string>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

struct Names {
  DType type;
  std::string_view name, safetensors, torch;
};
constexpr std::array<Names, 14> kNames = {{
    {DType::kF32, "f32", "F32", "float32"},
    {DType::kF16, "f16", "F16", "float16"},
    {DType::kBF16, "bf16", "BF16", "bfloat16"},
    {DType::kF64, "f64", "F64", "float64"},
    {DType::kI64, "i64", "I64", "int64"},
    {DType::kI32, "i32", "I32", "int32"},
    {DType::kI16, "i16", "I16", "int16"},
    {DType::kI8, "i8", "I8", "int8"},
    {DType::kU64, "u64", "U64", "uint64"},
    {DType::kU32, "u32", "U32", "uint32"},
    {DType::kU16, "u16", "U16", "uint16"},
    {DType::kU8, "u8", "U8", "uint8"},
    {DType::kBool, "bool", "BOOL", "bool"},
    {DType::kF8E4M3, "f8_e4m3", "F8_E4M3", "float8_e4m3fn"},
}};

const Names& names(DType t) { return kNames[static_cast<std::size_t>(t)]; }

constexpr std::array<float, 256> kF8E4M3Numbers = [] {
  std::array<float, 256> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = f8_e4m3_to_float(static_cast<std::uint8_t>(i));
  return numbers;
}();

}  // namespace

std::string_view name_of(DType t) { return names(t).name; }
std::string_view safetensors_name_of(DType t) { return names(t).safetensors; }

std::optional<DType> parse_dtype(std::string_view text) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  if (text == "fp32") return DType::kF32;
  if (text == "fp16" || text == "half") return DType::kF16;
  for (const Names& n : kNames) {
    if (text == n.name || text == n.safetensors || text == n.torch) return n.type;
  }
  return std::nullopt;
}

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  std::uint32_t exponent = (bits >> 10) & 0x1fU;
  std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent == 0) {
    // A subnormal half is mantissa · 2^-24, which a float holds exactly.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  exponent += 127 - 15;
  return std::bit_cast<float>(sign | (exponent << 23) | (mantissa << 13));
}

std::uint16_t float_to_f16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000U);
  const std::uint32_t magnitude = u & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to infinity
  if (magnitude < 0x38800000U) {
    // Below 2^-14 the result is subnormal; adding 0.5 aligns the bits and rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

float round_to(DType t, float x) {
  switch (t) {
    case DType::kBF16: return bf16_to_float(float_to_bf16(x));
    case DType::kF16: return f16_to_float(float_to_f16(x));
    default: return x;
  }
}

void convert_to_float(DType t, const void* from, std::span<float> to) {
  if (to.empty()) return;
  if (t == DType::kF32) {
    std::memcpy(to.data(), from, to.size_bytes());
    return;
  }
  const auto* bytes = static_cast<const unsigned char*>(from);
  if (t == DType::kF8E4M3) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = kF8E4M3Numbers[bytes[i]];
    return;
  }
  check(t == DType::kF16 || t == DType::kBF16, "only f32, f16, bf16 and f8_e4m3 convert to float");
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes + 2 * i, 2);
    to[i] = t == DType::kBF16 ? bf16_to_float(bits) : f16_to_float(bits);
  }
}

void convert_from_float(DType t, std::span<const float> from, void* to) {
  if (from.empty()) return;
  if (t == DType::kF32) {
    std::memcpy(to, from.data(), from.size_bytes());
    return;
  }
  check(t == DType::kF16 || t == DType::kBF16, "only f32, f16 and bf16 convert from float");
  auto* bytes = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t bits = t == DType::kBF16 ? float_to_bf16(from[i]) : float_to_f16(from[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

}  // namespace kvroof
