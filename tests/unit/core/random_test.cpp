#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/core/gumbel.hpp"
#include "sim/core/philox.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

void check_words(const Philox4& got, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  CHECK(got.x[0] == a);
  CHECK(got.x[1] == b);
  CHECK(got.x[2] == c);
  CHECK(got.x[3] == d);
}

struct Moments {
  double mean = 0;
  double variance = 0;
};

Moments moments(const std::vector<double>& x) {
  Moments m;
  for (const double v : x) m.mean += v;
  m.mean /= static_cast<double>(x.size());
  for (const double v : x) m.variance += (v - m.mean) * (v - m.mean);
  m.variance /= static_cast<double>(x.size());
  return m;
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const Moments a = moments(x);
  const Moments b = moments(y);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += (x[i] - a.mean) * (y[i] - b.mean);
  return sum / static_cast<double>(x.size()) / std::sqrt(a.variance * b.variance);
}

std::vector<double> draws(NoiseKey key, std::uint32_t count) {
  std::vector<double> x(count);
  for (key.position = 0; key.position < count; ++key.position) x[key.position] = static_cast<double>(gumbel_draw(key));
  return x;
}

constexpr double kEulerGamma = 0.57721566490153286;
constexpr double kGumbelVariance = 1.6449340668482264;  // π² / 6

}  // namespace

TEST_CASE("Philox4x32-10 gives the published known answers") {
  // kat_vectors of Random123.
  check_words(philox4x32_10({{0, 0, 0, 0}}, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  check_words(philox4x32_10({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffffffffffff), 0x408f276d,
              0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  check_words(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822), 0xd16cfe09,
              0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST_CASE("a uniform draw is never 0 or 1") {
  CHECK(uniform_open(0) == 0x1p-24F);
  CHECK(uniform_open(0xffffffff) == 1.0F - 0x1p-24F);
  CHECK(uniform_open(0x80000000) > 0.5F);
}

TEST_CASE("the portable logarithm is within 2 ulp away from 1, and within 2^-24 near it") {
  double worst_ulps = 0;
  double worst_near_one = 0;
  for (std::uint32_t bits = 0x00800000U; bits < 0x7f800000U; bits += 10007) {
    const float x = bits_float(bits);
    const double exact = std::log(static_cast<double>(x));
    const double error = std::abs(static_cast<double>(portable_log(x)) - exact);
    if (std::abs(exact) < 0.25) {
      worst_near_one = std::max(worst_near_one, error);
    } else {
      worst_ulps = std::max(worst_ulps, error / std::ldexp(1.0, std::ilogb(exact) - 23));
    }
  }
  CHECK(worst_ulps < 2);
  CHECK(worst_near_one < 0x1p-24);
  CHECK(portable_log(1.0F) == 0.0F);
}

TEST_CASE("Gumbel draws have mean 0.5772, variance π²/6 and P(g ≤ 0) = 1/e") {
  constexpr std::uint32_t kCount = 1'000'000;
  const std::vector<double> x = draws({.seed = 11, .layer = 3, .query_head = 5}, kCount);
  const Moments m = moments(x);
  const double root = std::sqrt(double{kCount});
  CHECK(std::abs(m.mean - kEulerGamma) < 3 * std::sqrt(kGumbelVariance) / root);
  CHECK(std::abs(m.variance - kGumbelVariance) < 3 * kGumbelVariance * std::sqrt(4.4) / root);  // kurtosis 5.4
  const auto below = static_cast<double>(std::ranges::count_if(x, [](double v) { return v <= 0; }));
  CHECK(std::abs(below / kCount - std::exp(-1.0)) < 3 * 0.483 / root);
}

TEST_CASE("draws of different seeds, sequences, layers, heads and queries are independent") {
  constexpr std::uint32_t kCount = 200'000;
  const NoiseKey base{.seed = 1, .sequence = 2, .layer = 3, .query_head = 4};
  const std::vector<double> x = draws(base, kCount);
  NoiseKey others[5] = {base, base, base, base, base};
  others[0].seed = 2;
  others[1].sequence = 3;
  others[2].layer = 4;
  others[3].query_head = 5;
  others[4].query_position = 9;
  for (const NoiseKey& other : others) {
    const double r = correlation(x, draws(other, kCount));
    CHECK(std::abs(r) < 4 / std::sqrt(double{kCount}));
    CHECK(r != 0);
  }
  CHECK(std::abs(correlation({x.begin(), x.end() - 1}, {x.begin() + 1, x.end()})) < 4 / std::sqrt(double{kCount}));
}

TEST_CASE("equal keys give equal draws") {
  const NoiseKey key{.seed = 7, .sequence = 1, .layer = 2, .query_head = 3, .position = 4, .query_position = 5};
  CHECK(float_bits(gumbel_draw(key)) == float_bits(gumbel_draw(key)));
}
