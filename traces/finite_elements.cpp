#include "traces/finite_elements.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace kvroof {

namespace {

// The first element whose bits of the exponent are `least` or more.
std::optional<std::size_t> first_of_exponent(DType type, std::span<const std::byte> bytes, std::uint32_t exponent,
                                             std::uint32_t least) {
  const std::size_t size = size_of(type);
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, size);
    if ((bits & exponent) >= least) return at / size;
  }
  return std::nullopt;
}

std::uint32_t exponent_bits(DType type) {
  return type == DType::kF32 ? 0x7f800000U : type == DType::kBF16 ? 0x7f80U : 0x7c00U;
}

}  // namespace

std::optional<std::size_t> first_not_finite(DType type, std::span<const std::byte> bytes) {
  const std::uint32_t exponent = exponent_bits(type);
  return first_of_exponent(type, bytes, exponent, exponent);
}

std::optional<std::size_t> first_beyond(DType type, std::span<const std::byte> bytes, int exponent) {
  const std::uint32_t bits = exponent_bits(type);
  const bool half = type != DType::kF32 && type != DType::kBF16;
  const int bias = half ? 15 : 127, mantissa = half ? 10 : type == DType::kBF16 ? 7 : 23;
  const auto least = static_cast<std::uint32_t>(bias + exponent) << mantissa;
  return first_of_exponent(type, bytes, bits, std::min(bits, least));
}

}  // namespace kvroof
