// Sums of attention in which older rows fade.
#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// Three rows whose weights are 1; 0.9, 0.1; 0.1, 0.5, 0.4.
float three_rows(std::uint32_t, std::uint32_t t, std::uint32_t j) {
  constexpr float kWeights[3][3] = {{1, 0, 0}, {0.9F, 0.1F, 0}, {0.1F, 0.5F, 0.4F}};
  return std::log(kWeights[t][j]);
}

Positions kept_of(const std::string& policy) {
  Driver driver(spec_of(policy), {.prompt = 3}, three_rows);
  driver.prompt();
  return driver.kept(0);
}

}  // namespace

TEST_CASE("a2sf lets the attention of older rows fade by its factor, row after row") {
  // Sums with factor 0.5: 0.25 + 0.45 + 0.1, 0.05 + 0.5, 0.4.
  CHECK(kept_of("a2sf:budget=2:recent=0:forgetting=0.5") == Positions{0, 1});
  // With 0.25: 0.0625 + 0.225 + 0.1, 0.025 + 0.5, 0.4.
  CHECK(kept_of("a2sf:budget=2:recent=0:forgetting=0.25") == Positions{1, 2});
}

TEST_CASE("a2sf that forgets all earlier rows keeps what tova keeps of a single head") {
  const Shape shape = {.prompt = 40, .decode = 30};
  const auto logit = [](std::uint32_t, std::uint32_t t, std::uint32_t j) {
    return 4 * uniform_draw({.seed = 3, .query_head = t, .position = j});
  };
  Driver fading(spec_of("a2sf:budget=12:recent=0:forgetting=0"), shape, logit);
  Driver tova(spec_of("tova:budget=12"), shape, logit);
  CHECK(kept_each_step(fading) == kept_each_step(tova));
}

TEST_CASE("scissorhands holds three quarters of its budget on average when it drops half of it at once") {
  constexpr std::uint32_t kBudget = 200;
  const auto logit = [](std::uint32_t, std::uint32_t t, std::uint32_t j) {
    return 2 * uniform_draw({.seed = 8, .query_head = t, .position = j});
  };
  Driver driver(spec_of("scissorhands:budget=200:drop=0.5"), {.prompt = kBudget, .decode = 901}, logit);
  driver.prompt();
  driver.row(kBudget);  // one more than fits
  double sum = 0;
  constexpr std::uint32_t kRows = 900;
  for (std::uint32_t i = 1; i <= kRows; ++i) {
    driver.row(kBudget + i);
    sum += static_cast<double>(driver.kept(0).size());
  }
  CHECK(sum / kRows == Approx(0.75 * kBudget).epsilon(0.02));
}
