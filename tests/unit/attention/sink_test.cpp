// Attention sinks: softmax over one logit more than there are tokens.
#include <cmath>
#include <random>

#include "sim/attention/attention.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

std::vector<float> numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(count);
  for (float& value : x) value = uniform(random);
  return x;
}

}  // namespace

TEST_CASE("a sink is one more logit of a softmax: tokens get what is left, and keep their ratios") {
  // Beside 1 and 2 a sink of 5: 1/8, 2/8, and 5/8 for none of the tokens.
  std::vector<float> two = {std::log(1.0F), std::log(2.0F)};
  CHECK(softmax(two, two, std::log(5.0F)) == Approx(0.625).epsilon(1e-6));
  CHECK(two[0] == Approx(0.125).epsilon(1e-6));
  CHECK(two[1] == Approx(0.25).epsilon(1e-6));
  // Above all tokens, among them and below them, also where equal tokens would have equal shares by themselves.
  for (const float sink : {-200.0F, -8.0F, 0.0F, 9.0F, 50.0F, 200.0F}) {
    for (const float spread : {0.0F, 3.0F}) {
      std::vector<float> row = numbers(33, 5);
      for (float& x : row) x = 1 + spread * x;
      double total = std::exp(static_cast<double>(sink));
      for (const float x : row) total += std::exp(static_cast<double>(x));
      std::vector<float> weights(row.size());
      const float of_sink = softmax(row, weights, sink);
      CHECK(of_sink == Approx(std::exp(static_cast<double>(sink)) / total).epsilon(1e-5).margin(1e-29));
      for (std::size_t i = 0; i < row.size(); ++i) {
        CHECK(weights[i] == Approx(std::exp(static_cast<double>(row[i])) / total).epsilon(1e-5).margin(1e-29));
      }
    }
  }
  std::vector<float> row = numbers(33, 5);
  CHECK(softmax(row, row) == 0);
  // However far above it is: what is left of the tokens keeps its ratios.
  std::vector<float> left = {std::log(1.0F), std::log(3.0F)};
  CHECK(softmax(left, left, 1e30F) == Approx(1));
  CHECK(left[1] > 0);
  CHECK(left[1] == Approx(3 * left[0]).epsilon(1e-6));
}

TEST_CASE("with a sink the softmax of a part of a row can be made of the row's exponentials, to the bit") {
  const std::vector<float> row = numbers(500, 11);
  std::vector<float> of_row(row.size());
  for (const float sink : {-6.0F, 0.5F, 12.0F}) {
    const RowExponentials made = exponentials(row, of_row, sink);
    REQUIRE(made.shares);
    for (const std::size_t count : {1, 32, 200}) {
      std::vector<float> logits(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(count));
      std::vector<float> weights(of_row.begin(), of_row.begin() + static_cast<std::ptrdiff_t>(count));
      const std::optional<float> factor = weight_factor(weights, made.sink);
      REQUIRE(factor);
      const float first = weights[0] * *factor;
      softmax(logits, logits, sink);
      weights_of_exponentials(weights, weights, made.sink);
      CHECK(logits == weights);
      CHECK(weights[0] == first);
    }
  }
}
