#include "sim/attention/sums.hpp"

#include <array>
#include <cmath>
#include <cstddef>

namespace kvroof {
namespace {

template <class Term>
double sum_terms(std::size_t count, Term term) {
  std::array<double, 8> lanes{};
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += term(i + lane);
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace

double sum_of(std::span<const float> x) {
  return sum_terms(x.size(), [x](std::size_t i) { return static_cast<double>(x[i]); });
}

double norm_of(std::span<const float> x) { return std::sqrt(dot_of(x, x)); }

double dot_of(std::span<const float> x, std::span<const float> y) {
  return sum_terms(x.size(), [x, y](std::size_t i) { return static_cast<double>(x[i]) * static_cast<double>(y[i]); });
}

}  // namespace kvroof
