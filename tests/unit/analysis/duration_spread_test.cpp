#include "analysis/duration_spread.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/catch.hpp"

using namespace kvroof;

TEST_CASE("median and deviation of few short durations are those of the textbook") {
  DurationSpread spread;
  CHECK(spread.median_ns() == 0);
  CHECK(spread.deviation_ns() == 0);
  for (const std::uint64_t ns : {4, 2, 4, 9, 5, 4, 7, 5}) spread.add(ns);
  CHECK(spread.median_ns() == 4.5);
  CHECK(spread.deviation_ns() == Approx(std::sqrt(32.0 / 7)));  // mean 5, squares of the distances 32
  spread.add(16383);
  CHECK(spread.median_ns() == 5);
  DurationSpread one;
  one.add(16383);
  CHECK(one.median_ns() == 16383);
}

TEST_CASE("the median of long durations is within 0.02 %, however they come together") {
  std::vector<std::uint64_t> all;
  DurationSpread whole, parts[3];
  std::uint64_t state = 7;
  for (std::uint32_t i = 0; i < 3001; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t ns = state >> (20 + i % 40);  // from some ns to hours
    all.push_back(ns);
    whole.add(ns);
    parts[i % 3].add(ns);
  }
  DurationSpread joined;
  for (const DurationSpread& part : parts) joined += part;
  std::ranges::sort(all);
  const auto median = static_cast<double>(all[1500]);
  double mean = 0, squares = 0;
  for (const std::uint64_t ns : all) mean += static_cast<double>(ns) / 3001;
  for (const std::uint64_t ns : all) squares += std::pow(static_cast<double>(ns) - mean, 2);
  for (const DurationSpread* spread : {&whole, &joined}) {
    CHECK(spread->median_ns() == Approx(median).epsilon(0.0002));
    CHECK(spread->deviation_ns() == Approx(std::sqrt(squares / 3000)));
  }
}
