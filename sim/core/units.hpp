// Physical quantities; only legal combinations compile.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>

namespace kvroof {

// How counts are rounded that are no whole numbers: to nearest, halves up. Of counts below 2^53.
inline std::uint64_t nearest(double x) { return static_cast<std::uint64_t>(std::llround(x)); }
inline std::uint64_t scaled(std::uint64_t count, double factor) {
  return nearest(static_cast<double>(count) * factor);
}
inline std::uint64_t nearest_mean(std::uint64_t sum, std::uint64_t count) {
  return count == 1 ? sum : nearest(static_cast<double>(sum) / static_cast<double>(count));
}

// A count or amount with a unit. `Rep` is exact (uint64) for bytes and double elsewhere.
template <class Tag, class Rep>
struct Quantity {
  Rep value{};
  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep v) : value(v) {}
  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
  friend constexpr Quantity operator*(Quantity a, Rep b) { return Quantity(a.value * b); }
  friend constexpr Quantity operator*(Rep a, Quantity b) { return Quantity(a * b.value); }
  constexpr Quantity& operator+=(Quantity b) {
    value += b.value;
    return *this;
  }
};

using Bytes = Quantity<struct BytesTag, std::uint64_t>;
using Flops = Quantity<struct FlopsTag, double>;  // number of floating-point operations
using Seconds = Quantity<struct SecondsTag, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;

constexpr Seconds operator/(Bytes a, BytesPerSecond b) { return Seconds(static_cast<double>(a.value) / b.value); }
constexpr Seconds operator/(Flops a, FlopsPerSecond b) { return Seconds(a.value / b.value); }
constexpr BytesPerSecond operator/(Bytes a, Seconds b) {
  return BytesPerSecond(static_cast<double>(a.value) / b.value);
}

inline constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
inline constexpr double kGB = 1e9;
constexpr double gib(Bytes b) { return static_cast<double>(b.value) / kGiB; }

}  // namespace kvroof
