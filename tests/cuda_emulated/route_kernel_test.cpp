// The choice of experts, against the host's router.
#include <random>
#include <vector>

#include "kernels/cpu/experts.hpp"
#include "kernels/cuda/kernels.hpp"
#include "tests/catch.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

std::vector<float> normal_floats(std::size_t count, float deviation, std::mt19937& random) {
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

// Of 60 tokens and 40 experts, of which each takes 4.
void check_choice(const RoutingRule& rule, float bias_deviation) {
  constexpr std::uint32_t kTokens = 60, kExperts = 40, kPerToken = 4;
  std::mt19937 random(3);
  const std::vector<float> logits = normal_floats(std::size_t{kTokens} * kExperts, 2, random);
  const std::vector<float> bias = normal_floats(bias_deviation > 0 ? kExperts : 0, bias_deviation, random);
  std::vector<std::uint32_t> chosen(std::size_t{kTokens} * kPerToken);
  std::vector<float> weights(chosen.size());
  RouteArguments a;
  a.logits = logits.data();
  a.tokens = kTokens;
  a.experts = kExperts;
  a.per_token = kPerToken;
  if (rule.scores == RouterScores::kSigmoid) a.scores = RouteScores::kSigmoid;
  if (rule.scores == RouterScores::kSparseMixer) a.scores = RouteScores::kSparseMixer;
  a.bias = bias.empty() ? nullptr : bias.data();
  a.renormalise = rule.renormalise;
  a.scale = rule.scale;
  a.margin = rule.margin;
  a.chosen = chosen.data();
  a.weights = weights.data();
  Stream stream;
  run_choose_experts(stream, a);
  Router router;
  std::vector<Route> expected(kPerToken);
  for (std::size_t t = 0; t < kTokens; ++t) {
    router.route(std::span(logits).subspan(t * kExperts, kExperts), rule, expected, bias);
    for (std::size_t i = 0; i < kPerToken; ++i) {
      CAPTURE(t, i);
      CHECK(chosen[t * kPerToken + i] == expected[i].expert);
      CHECK(weights[t * kPerToken + i] == Approx(expected[i].weight).epsilon(1e-5));
    }
  }
}

}  // namespace

TEST_CASE("experts are chosen and weighed as the host's router does, by softmax, by sigmoids and with a bias") {
  for (const RouterScores scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    for (const float bias : {0.0F, 0.1F}) {
      CAPTURE(scores == RouterScores::kSigmoid, bias);
      check_choice({.scores = scores, .renormalise = bias > 0, .scale = 2.5F}, bias);
    }
  }
}

TEST_CASE("experts are chosen and weighed as the host's router does by SparseMixer, whatever is near") {
  for (const float margin : {0.0F, 0.02F, 0.3F, 1.0F, 100.0F}) {
    CAPTURE(margin);
    check_choice({.scores = RouterScores::kSparseMixer, .margin = margin}, 0);
  }
}
