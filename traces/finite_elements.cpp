#include "traces/finite_elements.hpp"

#include <cstdint>
#include <cstring>

namespace kvroof {

std::optional<std::size_t> first_not_finite(DType type, std::span<const std::byte> bytes) {
  const std::size_t size = size_of(type);
  const std::uint32_t exponent = type == DType::kF32 ? 0x7f800000U : type == DType::kBF16 ? 0x7f80U : 0x7c00U;
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, size);
    if ((bits & exponent) == exponent) return at / size;
  }
  return std::nullopt;
}

}  // namespace kvroof
