// RoCo: mean attention, among the tokens to which it varies least, by hand.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

using Weights = std::vector<std::vector<float>>;  // [row][token]

Driver driver_of(std::string_view words, const Weights& weights, std::uint32_t prompt) {
  const auto logit = [weights](std::uint32_t, std::uint32_t t, std::uint32_t j) { return std::log(weights[t][j]); };
  return {spec_of(fmt::format("roco:{}", words)), {.prompt = prompt}, logit};
}

Positions kept_of(std::string_view words, const Weights& weights) {
  Driver driver = driver_of(words, weights, static_cast<std::uint32_t>(weights.size()));
  driver.prompt();
  return driver.kept(0);
}

// Means 0.6, 0.333, 0.25, 0.1; variances 0.08, 0.0089, 0.0225, 0.
const Weights kVaried = {{1}, {0.6F, 0.4F}, {0.2F, 0.4F, 0.4F}, {0.6F, 0.2F, 0.1F, 0.1F}};

}  // namespace

TEST_CASE("roco drops the lowest means of the attention that rows paid since a token came") {
  // Means 0.7, 0.2, 0.15, 0.3 and sums 2.8, 0.6, 0.3, 0.3: by sums tokens 0 and 1 would stay.
  CHECK(kept_of("budget=2:robust=0:recent=0:sinks=0",
                {{1}, {0.7F, 0.3F}, {0.6F, 0.2F, 0.2F}, {0.5F, 0.1F, 0.1F, 0.3F}}) == Positions{0, 3});
}

TEST_CASE("roco keeps the tokens to which attention varies most, whatever its mean") {
  // One token stays by its variance beside those that robust names: token 0, then token 2 as well, which has a lower
  // mean than token 1.
  CHECK(kept_of("budget=2:robust=0:recent=0:sinks=0", kVaried) == Positions{0, 1});
  CHECK(kept_of("budget=2:robust=1:recent=0:sinks=0", kVaried) == Positions{0, 2});
  CHECK(kept_of("budget=2:robust=0.5:recent=0:sinks=0", kVaried) == Positions{0, 2});
}

TEST_CASE("roco while decoding lets the lowest mean of k - robust - sinks tokens go") {
  Weights weights = kVaried;
  weights.push_back({0.3F, 0.1F, 0, 0.5F, 0.1F});
  Driver driver = driver_of("budget=3:robust=1:recent=1:sinks=0", weights, 4);
  driver.prompt();
  // Tokens 1 and 2 may go.
  CHECK(driver.kept(0) == Positions{0, 1, 3});
  driver.row(4);
  // Tokens 1 and 3: variances 0.0784, 0.0169, 0.04. Means 0.275 and 0.3, sums 1.1 and 0.6.
  CHECK(driver.kept(0) == Positions{0, 3, 4});
}

TEST_CASE("roco keeps first and recent tokens before all others, and of too many the youngest") {
  CHECK(kept_of("budget=2:robust=0:recent=1:sinks=1", kVaried) == Positions{0, 3});
  CHECK(kept_of("budget=2:recent=1:sinks=3", kVaried) == Positions{2, 3});
}

TEST_CASE("roco takes the mean of the query heads that share a KV head before it looks how much rows differ") {
  const Weights heads[] = {{{1}, {0.9F, 0.1F}, {0.05F, 0.9F, 0.05F}}, {{1}, {0.1F, 0.9F}, {0.35F, 0.1F, 0.55F}}};
  const auto kept = [&](std::string_view group) {
    Driver driver(spec_of(fmt::format("roco:budget=2:robust=0:recent=0:sinks=0:group={}", group)),
                  {.query_heads = 2, .kv_heads = 1, .prompt = 3},
                  [&](std::uint32_t h, std::uint32_t t, std::uint32_t j) { return std::log(heads[h][t][j]); });
    driver.prompt();
    std::vector<Positions> sets;
    for (std::uint32_t h = 0; h < driver.policy().storage_heads(); ++h) sets.push_back(driver.kept(h));
    return sets;
  };
  // Together token 1 got 0.5 twice and token 2 0.3 once: neither varies.
  CHECK(kept("mean") == std::vector<Positions>{{0, 1}});
  // The second alone: means 0.483, 0.5, 0.55 and variances 0.144, 0.16, 0; token 1 is the one that stays by its.
  CHECK(kept("none") == std::vector<Positions>{{0, 1}, {1, 2}});
}

TEST_CASE("roco with prompt=stream evicts after each row of the prompt") {
  const Weights weights = {{1}, {0.6F, 0.4F}, {0.2F, 0.1F, 0.7F}, {0.02F, 0.9F, 0.02F, 0.06F}};
  // Once: means 0.455, 0.467, 0.36.
  CHECK(kept_of("budget=2:robust=0:recent=1:sinks=0", weights) == Positions{1, 3});
  // Row 2 drops token 1, whose mean is 0.25 so far; row 3 then pays tokens 0 and 2 a fifth: means 0.5 and 0.45.
  CHECK(kept_of("budget=2:robust=0:recent=1:sinks=0:prompt=stream", weights) == Positions{0, 3});
}
