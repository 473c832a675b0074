// Quantiles that lie between two values of a sample.
#pragma once

#include <cmath>
#include <cstddef>

namespace kvroof {

// The quantile of so many ascending values, at least one: value_at(i) is the i-th, from 0. Between two values it lies
// on the straight line, as NumPy's `quantile` has it by default. Infinite or NaN where a value that takes part is.
template <class ValueAt>
double interpolated_quantile(std::size_t count, double share, const ValueAt& value_at) {
  const double at = share * static_cast<double>(count - 1);
  const auto below = static_cast<std::size_t>(at);
  const double part = at - static_cast<double>(below);
  const double low = value_at(below);
  return part > 0 ? low + part * (value_at(below + 1) - low) : low;
}

}  // namespace kvroof
