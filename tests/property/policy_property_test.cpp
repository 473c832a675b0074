// Reductions of one policy to another, and laws that hold for random attention.
#include <cmath>

#include "sim/core/gumbel.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

LogitFunction random_attention(std::uint64_t seed) {
  return [seed](std::uint32_t h, std::uint32_t t, std::uint32_t j) {
    return 3 * uniform_draw({.seed = seed, .layer = h, .query_head = t, .position = j});
  };
}

std::vector<std::vector<Positions>> all_sets(std::string_view spec, const Shape& shape, const LogitFunction& logit) {
  std::vector<std::vector<Positions>> heads;
  Driver probe(spec_of(spec), shape, logit);
  for (std::uint32_t h = 0; h < probe.policy().storage_heads(); ++h) {
    Driver driver(spec_of(spec), shape, logit);
    heads.push_back(kept_each_step(driver, h));
  }
  return heads;
}

void check_equal_sets(std::string_view a, std::string_view b) {
  for (std::uint32_t seed = 0; seed < 8; ++seed) {
    const Shape shape = {.query_heads = 4, .kv_heads = seed % 2 == 0 ? 4U : 2U, .prompt = 20 + 9 * seed, .decode = 30};
    INFO(a << " and " << b << ", seed " << seed);
    CHECK(all_sets(a, shape, random_attention(seed)) == all_sets(b, shape, random_attention(seed)));
  }
}

}  // namespace

TEST_CASE("keyformer without noise at temperature 1 is h2o with the same recent part") {
  check_equal_sets("keyformer:budget=17:recent=6:noise=none:tau=1..1", "h2o:budget=17:recent=6");
  check_equal_sets("keyformer:budget=0.4:noise=none:tau=1:group=max", "h2o:budget=0.4:recent=0.3:group=max");
}

TEST_CASE("h2o whose recent part is the budget is the window") {
  check_equal_sets("h2o:budget=15:recent=15", "window:budget=15");
  check_equal_sets("h2o:budget=0.5:recent=1.0", "window:budget=0.5");
}

TEST_CASE("streaming without sinks is the window") {
  check_equal_sets("streaming:budget=15:sinks=0", "window:budget=15");
}

TEST_CASE("sum and mean over a group choose the same sets") {
  check_equal_sets("h2o:budget=15:group=sum", "h2o:budget=15:group=mean");
}

TEST_CASE(
    "scissorhands that drops one token at a time holds the budget, and each compression drops half of it by default") {
  const Shape shape = {.prompt = 40, .decode = 100};
  const auto one_by_one = all_sets("scissorhands:budget=20:drop=1:recent=5", shape, random_attention(1))[0];
  for (const Positions& kept : one_by_one) CHECK(kept.size() == 20);
  // From 20 down to max(10, 40 − 20) dropped = 20 kept; then 21 → 11, grow to 20, 21 → 11, …
  const auto sets = all_sets("scissorhands:budget=20:recent=5", shape, random_attention(1))[0];
  CHECK(sets[0].size() == 20);
  CHECK(sets[1].size() == 11);
  CHECK(sets[10].size() == 20);
  CHECK(sets[11].size() == 11);
}

TEST_CASE("scissorhands' occupancy is a saw-tooth around three quarters of the budget") {
  const auto sets = all_sets("scissorhands:budget=64", {.prompt = 128, .decode = 640}, random_attention(2))[0];
  double mean = 0;
  for (std::size_t i = 1; i < sets.size(); ++i) mean += static_cast<double>(sets[i].size());
  mean /= static_cast<double>(sets.size() - 1) * 64;
  CHECK(mean == Approx(0.75).margin(0.02));
}

TEST_CASE("readings A and B of scissorhands agree while every token has been there for the whole history") {
  // At the end of a prompt of 60 rows all tokens older than the last 4 have been seen by 4 rows, and no weight equals
  // 1/c.
  const Shape shape = {.prompt = 60, .decode = 0};
  const char* rest = "budget=30:history=4:recent=4";
  CHECK(all_sets(fmt::format("scissorhands:reading=A:{}", rest), shape, random_attention(3)) ==
        all_sets(fmt::format("scissorhands:reading=B:{}", rest), shape, random_attention(3)));
}

TEST_CASE("random keeps every token with equal probability, whatever its age") {
  constexpr std::uint32_t kRuns = 2000;
  constexpr Shape kShape = {.prompt = 24, .decode = 16};
  std::vector<double> kept(kShape.prompt + kShape.decode);
  for (std::uint32_t run = 0; run < kRuns; ++run) {
    Shape shape = kShape;
    shape.seed = run;
    Driver driver(spec_of("random:budget=10"), shape, random_attention(0));
    const auto sets = kept_each_step(driver);
    for (const std::uint32_t p : sets.back()) kept[p] += 1;
  }
  const double expected = 10.0 / 40;
  const double sigma = std::sqrt(expected * (1 - expected) / kRuns);
  for (const double count : kept) CHECK(std::abs(count / kRuns - expected) < 4.5 * sigma);
}

TEST_CASE("equal scores give up the oldest token first") {
  Driver driver(spec_of("h2o:budget=6:recent=2"), {.prompt = 1, .decode = 12}, [](auto, auto, auto) { return 0.0F; });
  driver.prompt();
  for (std::uint32_t t = 1; t < 13; ++t) driver.row(t);
  // Uniform attention scores older tokens higher, so the lowest is the one that just left the recent window.
  CHECK(driver.kept(0) == Positions{0, 1, 2, 3, 11, 12});
}

TEST_CASE("attention equal to scissorhands' threshold is neither above nor below it") {
  for (const char* reading : {"A", "B"}) {
    INFO("reading " << reading);
    const std::string spec =
        fmt::format("scissorhands:budget=6:recent=2:drop=3:prompt=stream:history=16:reading={}", reading);
    // Uniform attention is 1/c: every count is 0, and the oldest go.
    Driver uniform(spec_of(spec), {.prompt = 7}, [](auto, auto, auto) { return 0.0F; });
    uniform.prompt();
    CHECK(uniform.kept(0) == Positions{3, 4, 5, 6});
    // Only the last row tells tokens apart: it finds 2, 3 and 4 unimportant, however often 0 and 1 were at the
    // threshold.
    Driver last(spec_of(spec), {.prompt = 7},
                [](auto, std::uint32_t t, std::uint32_t j) { return t == 6 && j >= 2 && j <= 4 ? -10.0F : 0.0F; });
    last.prompt();
    CHECK(last.kept(0) == Positions{0, 1, 5, 6});
  }
}
