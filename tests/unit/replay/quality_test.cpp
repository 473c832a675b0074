#include "sim/replay/quality.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/catch.hpp"

using namespace kvroof;

TEST_CASE("the worst 1 % is the mean of the lowest hundredth, rounded down, of all values") {
  std::vector<double> values(1234);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.5 + static_cast<double>(i) * 1e-4;
  const double expected = std::accumulate(values.begin(), values.begin() + 12, 0.0) / 12;
  std::shuffle(values.begin(), values.end(), std::mt19937(3));
  QualityStats stats(values.size(), 2, true);
  for (std::size_t i = 0; i < values.size(); ++i) stats.add(i % 2, values[i], 1 - values[i]);
  const auto quality = stats.finish();
  REQUIRE(quality);
  CHECK(quality->values == 1234);
  CHECK(quality->recall_worst1 == Approx(expected).epsilon(1e-12));
  CHECK(quality->recall_mean == Approx(0.5 + 1233 * 0.5e-4).epsilon(1e-12));
  CHECK(*quality->output_error == Approx(1 - quality->recall_mean).epsilon(1e-12));
}

TEST_CASE("fewer than a hundred values have a worst 1 % of one value") {
  QualityStats stats(3, 1, false);
  for (const double value : {0.9, 0.2, 0.7}) stats.add(0, value, 0);
  const auto quality = stats.finish();
  REQUIRE(quality);
  CHECK(quality->recall_worst1 == 0.2);
  CHECK_FALSE(quality->output_error);
}

TEST_CASE("quality is known for each layer") {
  QualityStats stats(4, 2, true);
  stats.add(0, 1.0, 0.0);
  stats.add(0, 0.5, 0.5);
  stats.add(1, 0.25, 0.1);
  stats.add(1, 0.75, 0.3);
  const auto quality = stats.finish();
  REQUIRE(quality);
  CHECK(quality->layers[0].recall_mean == 0.75);
  CHECK(quality->layers[1].recall_mean == 0.5);
  CHECK(quality->layers[1].output_error == Approx(0.2));
}

TEST_CASE("without decoded tokens there is no quality") { CHECK_FALSE(QualityStats(0, 4, true).finish()); }

TEST_CASE("the standard error is between sequences, each with its share of the mean") {
  QualityStats stats(6, 1, true);
  stats.add(0, 0.4, 0.1, 7);
  stats.add(0, 0.6, 0.3, 7);
  stats.add(0, 0.7, 0.2, 8);
  for (int i = 0; i < 3; ++i) stats.add(0, 0.9, 0.2, 3);
  const auto quality = stats.finish();
  REQUIRE(quality);
  REQUIRE(quality->sequences.size() == 3);
  CHECK(quality->sequences[0].id == 7);
  CHECK(quality->sequences[0].recall_mean == Approx(0.5));
  CHECK(quality->sequences[2].values == 3);
  // A third, a sixth and half of the values, whose mean is 4.4 / 6.
  const double mean = 4.4 / 6, sum = std::pow((0.5 - mean) / 3, 2) + std::pow((0.7 - mean) / 6, 2) +
                                     std::pow((0.9 - mean) / 2, 2);
  CHECK(quality->recall_mean == Approx(mean));
  CHECK(*quality->recall_standard_error() == Approx(std::sqrt(1.5 * sum)));
  CHECK(*quality->output_error_standard_error() == Approx(0).margin(1e-12));
  QualityStats one(2, 1, true);
  one.add(0, 0.4, 0.1);
  one.add(0, 0.6, 0.1);
  CHECK_FALSE(one.finish()->recall_standard_error());
}
