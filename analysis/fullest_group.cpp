#include "analysis/fullest_group.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

template <std::size_t N>
using Series = std::array<double, N>;  // coefficients of x^0 … x^(N − 1); higher ones are cut off

template <std::size_t N>
Series<N> product(const Series<N>& a, const Series<N>& b) {
  Series<N> out{};
  for (std::size_t i = 0; i < N; ++i) {
    for (std::size_t j = 0; i + j < N; ++j) out[i + j] += a[i] * b[j];
  }
  return out;
}

template <std::size_t N>
Series<N> power(Series<N> base, std::uint32_t exponent) {
  Series<N> out{1};
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) out = product(out, base);
    base = product(base, base);
  }
  return out;
}

}  // namespace

// The chance that no group has more than m of n is n! times the coefficient of x^n in (Σ_{k ≤ m} (x / groups)^k / k!)^
// groups, and the expected largest count the sum of the chances that it is above 0, 1, 2 ….
FullestGroup::FullestGroup(std::uint32_t groups) : groups_(groups) {
  if (groups == 1) return;
  constexpr double kSure = 1 - 1e-13;
  Series<kFew + 1> of_one{1};
  double chance_of_all = 0, term = 1;
  for (std::uint32_t m = 0; m < kFew && chance_of_all < kSure; ++m) {
    const Series<kFew + 1> ways = power(of_one, groups);
    double factorial = 1;
    for (std::uint32_t n = 1; n <= kFew; ++n) {
      factorial *= n;
      chance_of_all = std::min(1.0, factorial * ways[n]);
      few_[n] += 1 - chance_of_all;
    }
    term /= static_cast<double>(groups) * (m + 1);
    of_one[m + 1] = term;
  }
}

double FullestGroup::expected(std::uint32_t count) const {
  if (groups_ == 1) return count;
  if (count <= kFew) return few_[count];
  // As of so many independent Poisson counts, of which none is far below the mean.
  const double mean = static_cast<double>(count) / groups_;
  const double first = std::max(0.0, std::floor(mean - 12 * std::sqrt(mean)));
  double at = std::exp(first * std::log(mean) - mean - std::lgamma(first + 1)), below = at;
  double expected = first;
  for (double k = first; k < count && below < 1 - 1e-12; ++k) {
    expected += 1 - std::pow(below, groups_);
    at *= mean / (k + 1);
    below += at;
  }
  return expected;
}

}  // namespace kvroof
