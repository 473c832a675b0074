#include "analysis/fullest_group.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace kvroof {
namespace {

// The chance that no group has more than `most` of `count`: group after group takes of those that are left.
double chance_of_most(std::uint32_t count, std::uint32_t groups, std::uint32_t most) {
  std::vector<double> taken(count + 1, 0);  // the chance that the groups so far take so many, none more than `most`
  taken[0] = 1;
  for (std::uint32_t group = 0; group + 1 < groups; ++group) {
    const double share = 1.0 / (groups - group);  // of this one among those that are left
    std::vector<double> next(count + 1, 0);
    for (std::uint32_t before = 0; before <= count; ++before) {
      const std::uint32_t left = count - before;
      double binomial = std::pow(1 - share, left);
      for (std::uint32_t own = 0; own <= std::min(left, most); ++own) {
        next[before + own] += taken[before] * binomial;
        binomial *= (left - own) / (own + 1.0) * share / (1 - share);
      }
    }
    taken = std::move(next);
  }
  double chance = 0;  // the last group takes the rest
  for (std::uint32_t own = 0; own <= std::min(count, most); ++own) chance += taken[count - own];
  return chance;
}

}  // namespace

double expected_fullest(std::uint32_t count, std::uint32_t groups) {
  constexpr std::uint32_t kFew = 64;
  if (groups == 1) return count;
  double expected = 0;
  if (count <= kFew) {
    for (std::uint32_t k = 0; k < count; ++k) expected += 1 - chance_of_most(count, groups, k);
    return expected;
  }
  // As of so many independent Poisson counts, of which none is far below the mean.
  const double mean = static_cast<double>(count) / groups;
  const double first = std::max(0.0, std::floor(mean - 12 * std::sqrt(mean)));
  double at = std::exp(first * std::log(mean) - mean - std::lgamma(first + 1)), below = at;
  expected = first;
  for (double k = first; k < count && below < 1 - 1e-12; ++k) {
    expected += 1 - std::pow(below, groups);
    at *= mean / (k + 1);
    below += at;
  }
  return expected;
}

}  // namespace kvroof
