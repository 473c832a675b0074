// Arithmetic on sizes from foreign bytes: a wrapped product is refused, never used.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace kvroof {

constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// Product of all factors (1 when there are none). A zero does not hide an overflow of the other factors.
constexpr std::optional<std::uint64_t> checked_product(std::span<const std::uint64_t> factors) {
  std::uint64_t nonzero = 1;
  bool zero = false;
  for (const std::uint64_t f : factors) {
    if (f == 0) {
      zero = true;
      continue;
    }
    const auto r = checked_mul(nonzero, f);
    if (!r) return std::nullopt;
    nonzero = *r;
  }
  return zero ? 0 : nonzero;
}

}  // namespace kvroof
