#include "kernels/engine/sampler.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

const std::vector<float> kLogits = {0.0F, 2.0F, 1.0F, 3.0F, -1.0F};  // ids by rank: 3 1 2 0 4

std::map<std::int64_t, double> frequencies(const Sampling& sampling, std::uint32_t draws) {
  std::map<std::int64_t, double> counts;
  for (std::uint32_t step = 0; step < draws; ++step) counts[sample(kLogits, sampling, 0, step)] += 1.0 / draws;
  return counts;
}

}  // namespace

TEST_CASE("greedy takes the largest logit, among equals the lowest id") {
  CHECK(sample(kLogits, {}, 0, 0) == 3);
  CHECK(sample(std::vector<float>{1, 5, 5, 2}, {}, 0, 0) == 1);
}

TEST_CASE("sampled frequencies follow the softmax at the temperature") {
  for (const double temperature : {0.7, 1.0, 2.0}) {
    const auto seen = frequencies({temperature, 0, 1, 7}, 40'000);
    double total = 0;
    for (const float x : kLogits) total += std::exp(x / temperature);
    for (std::size_t id = 0; id < kLogits.size(); ++id) {
      const double expected = std::exp(kLogits[id] / temperature) / total;
      INFO("temperature " << temperature << ", id " << id);
      const auto found = seen.find(static_cast<std::int64_t>(id));
      // Five standard deviations of a binomial count.
      CHECK(std::fabs((found == seen.end() ? 0 : found->second) - expected) < 5 * std::sqrt(expected / 40'000));
    }
  }
}

TEST_CASE("top-k samples among the k most likely tokens only") {
  const auto seen = frequencies({1.0, 2, 1, 0}, 5000);
  CHECK(seen.size() == 2);
  CHECK(seen.contains(3));
  CHECK(seen.contains(1));
}

TEST_CASE("top-p keeps the shortest prefix that reaches the probability") {
  // Softmax of the logits: 0.636, 0.234, 0.086, 0.032, 0.012.
  CHECK(frequencies({1.0, 0, 0.60, 0}, 2000).size() == 1);
  CHECK(frequencies({1.0, 0, 0.65, 0}, 2000).size() == 2);
  CHECK(frequencies({1.0, 0, 0.90, 0}, 2000).size() == 3);
}

TEST_CASE("of a large vocabulary the token is drawn in whose share of the sorted distribution the draw falls") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> logits(3000);
  for (float& x : logits) x = normal(random);
  logits[2000] = logits[10];
  std::vector<std::uint32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  std::vector<double> upto = {0};  // probability of all tokens before a rank, but for a factor
  for (const std::uint32_t id : order) upto.push_back(upto.back() + std::exp(static_cast<double>(logits[id])));
  constexpr std::uint32_t kEqual = 100'000;
  const std::vector<float> equal(kEqual, 0.5F);  // its ranks are its ids: the draw itself, in so many steps
  std::size_t deepest = 0;
  for (std::uint32_t step = 0; step < 200; ++step) {
    const auto draw = static_cast<double>(sample(equal, {1.0, 0, 1, 9}, 4, step)) / kEqual;
    for (const double top_p : {1.0, 0.9}) {
      const auto drawn = static_cast<std::uint32_t>(sample(logits, {1.0, 0, top_p, 9}, 4, step));
      const auto rank = static_cast<std::size_t>(std::find(order.begin(), order.end(), drawn) - order.begin());
      deepest = std::max(deepest, rank);
      std::size_t kept = 1;
      while (upto[kept] < top_p * upto.back()) ++kept;
      CHECK(upto[rank] / upto[kept] <= draw + 1.0 / kEqual);
      CHECK(upto[rank + 1] / upto[kept] >= draw - 1e-9);
    }
  }
  CHECK(deepest > 600);  // beyond what is sorted at first
}

TEST_CASE("logits with a NaN or an infinity are not drawn from, and the token has no finite probability") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(100, 1.0F);
    logits[70] = bad;
    const std::int64_t token = sample(logits, {0.8, 5, 0.9, 1}, 0, 0);
    REQUIRE((token >= 0 && token < 100));
    CHECK_FALSE(std::isfinite(log_probability(logits, token)));
  }
}

TEST_CASE("a draw depends on seed, sequence and step alone") {
  const Sampling one{1.0, 0, 1, 1};
  const Sampling two{1.0, 0, 1, 2};
  std::array<int, 3> differs{};
  for (std::uint32_t step = 0; step < 100; ++step) {
    const auto token = sample(kLogits, one, 0, step);
    CHECK(token == sample(kLogits, one, 0, step));
    differs[0] += token != sample(kLogits, two, 0, step);
    differs[1] += token != sample(kLogits, one, 1, step);
    differs[2] += token != sample(kLogits, one, 0, step + 1000);
  }
  for (const int count : differs) CHECK(count > 20);
}

TEST_CASE("log-probabilities are logit minus the logarithm of the sum of exponentials") {
  const std::vector<float> logits = {1000.0F, 1000.0F};
  CHECK(log_probability(logits, 0) == Approx(-std::log(2.0)));
  double sum = 0;
  for (std::int64_t id = 0; id < 5; ++id) sum += std::exp(log_probability(kLogits, id));
  CHECK(sum == Approx(1.0));
}
