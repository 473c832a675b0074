// Keyformer's ablations: other noise, a damped score, one score for a layer.
#include <cmath>

#include "sim/policy/noise.hpp"
#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kDraws = 200000;

std::vector<TokenPos> positions_to(std::uint32_t count) {
  std::vector<TokenPos> positions;
  for (std::uint32_t i = 0; i < count; ++i) positions.emplace_back(i);
  return positions;
}

}  // namespace

TEST_CASE("Gaussian noise has the mean, the deviation and the shares within one, two and three of them") {
  std::vector<float> draws(kDraws);
  gaussian_draws({.seed = 3}, positions_to(kDraws), draws);
  constexpr double kMean = 0.5772156649;
  const double deviation = std::acos(-1.0) / std::sqrt(6.0);
  double sum = 0;
  double squares = 0;
  std::vector<double> within(4);
  for (const float x : draws) {
    const double z = (static_cast<double>(x) - kMean) / deviation;
    sum += z;
    squares += z * z;
    for (std::size_t i = 1; i < within.size(); ++i) within[i] += std::fabs(z) < static_cast<double>(i) ? 1.0 : 0.0;
  }
  const auto close = [](double measured, double expected, double sigma) {
    return std::fabs(measured - expected) < 4 * sigma / std::sqrt(double{kDraws});
  };
  CHECK(close(sum / kDraws, 0, 1));
  CHECK(close(squares / kDraws, 1, std::sqrt(2.0)));
  const double expected[] = {0, 0.6826894921, 0.9544997361, 0.9973002039};
  for (std::size_t i = 1; i < within.size(); ++i) {
    CHECK(close(within[i] / kDraws, expected[i], std::sqrt(expected[i] * (1 - expected[i]))));
  }
}

TEST_CASE("a Gaussian draw grows with the uniform one that it is made of, on both sides of every seam") {
  // Φ(z) of the draw is the uniform number again.
  std::vector<float> draw(1);
  for (std::uint32_t i = 0; i < 20000; ++i) {
    const NoiseKey key{.seed = 9, .position = i};
    gaussian_draws(key, std::vector{TokenPos(i)}, draw);
    const double z = (static_cast<double>(draw[0]) - 0.5772156649) / (std::acos(-1.0) / std::sqrt(6.0));
    const auto u = static_cast<double>(uniform_draw(key));
    const double again = 0.5 * std::erfc(-z / std::sqrt(2.0));
    CHECK(std::fabs(again - u) <= 1e-5 * std::min(u, 1 - u) + 1e-9);
  }
}

TEST_CASE("a constant added to every logit is no noise, and the noise of two distributions keeps two sets") {
  const auto sets = [](const char* words) {
    return history(spec_of(fmt::format("keyformer:budget=12:{}", words)), kShape, random_logit);
  };
  CHECK(sets("draw=constant") == sets("noise=none"));
  CHECK(sets("noise=query:draw=constant") == sets("noise=none"));
  CHECK(sets("draw=gaussian") != sets("draw=gumbel"));
  CHECK(sets("noise=query:draw=gaussian") != sets("draw=gaussian"));
  CHECK(sets("noise=none:draw=gaussian") == sets("noise=none"));
}

TEST_CASE("keyformer without noise at temperature 1 is a2sf with the same factor, and h2o with the factor 1") {
  const auto sets = [](const std::string& policy) { return history(spec_of(policy), kShape, random_logit); };
  const std::string plain = "keyformer:budget=20:recent=6:noise=none:tau=1..1:damping=";
  CHECK(sets(plain + "0.9") == sets("a2sf:budget=20:recent=6:forgetting=0.9"));
  CHECK(sets(plain + "1") == sets("h2o:budget=20:recent=6"));
  CHECK(sets(plain + "0.9") != sets(plain + "1"));
}

TEST_CASE("one score for a layer is that of a model whose query heads all share one KV head") {
  Shape one = kShape;
  one.kv_heads = 1;
  const std::string policy = "keyformer:budget=14:noise=none";
  const auto shared = history(spec_of(policy + ":score=layer"), kShape, random_logit);
  const auto single = history(spec_of(policy), one, random_logit);
  for (std::size_t row = 0; row < single.size(); ++row) {
    for (const Positions& kept : shared[row]) CHECK(kept == single[row][0]);
  }
}

TEST_CASE("an engine's recipe is incomplete for every ablation, so that the policy object decides there") {
  const auto complete = [](const std::string& words) {
    const PolicySpec spec = spec_of("keyformer:budget=0.5" + words);
    return policy_info("keyformer").recipe(spec).complete;
  };
  for (const char* words : {"", ":noise=query", ":noise=none", ":noise=none:draw=gaussian", ":damping=1"}) {
    CHECK(complete(words));
  }
  for (const char* words : {":draw=gaussian", ":draw=constant", ":noise=query:draw=gaussian", ":damping=0.99",
                            ":score=layer"}) {
    CHECK_FALSE(complete(words));
  }
}

TEST_CASE("no noise is drawn for tokens that Keyformer is shown no row of, as where a device has the scores") {
  PolicyContext context;
  context.prompt = 8;
  std::size_t drawn = 0;
  const auto policy = make_keyformer(parse_policies("keyformer:budget=4").at(0), context,
                                     [&](NoiseKey, std::span<const TokenPos> positions, std::span<float> out) {
                                       drawn += positions.size();
                                       std::ranges::fill(out, 0.0F);
                                     });
  for (std::uint32_t t = 0; t < 8; ++t) policy->admit(HeadId(0), SlotId(t), TokenPos(t));
  CHECK(drawn == 0);
  const std::vector<TokenPos> positions = positions_to(8);
  const std::vector<float> logits(8, 0.0F);
  AttentionRows rows;
  rows.query = TokenPos(7);
  rows.positions = positions;
  rows.logits = logits.data();
  policy->observe(HeadId(0), rows);
  CHECK(drawn == 8);
  policy->admit(HeadId(0), SlotId(8), TokenPos(8));
  CHECK(drawn == 9);
}
