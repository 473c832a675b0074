// CAKE's indicator: mean and variance of what the last rows pay, by hand.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/all_policies.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// The last two rows pay token 0 0.4 and 0.1, token 1 twice 0.1, token 2 0.2 and 0.4.
float logit_of_weight(std::uint32_t, std::uint32_t t, std::uint32_t j) {
  constexpr float kRows[2][5] = {{0.4F, 0.1F, 0.2F, 0.3F, 0}, {0.1F, 0.1F, 0.4F, 0.1F, 0.3F}};
  return t < 3 ? 0 : std::log(kRows[t - 3][j]);
}

Positions kept_of(std::string_view words) {
  Driver driver(spec_of(fmt::format("cake:budget=3:window=2:kernel=1:{}", words)), {.prompt = 5}, logit_of_weight);
  driver.prompt();
  return driver.kept(0);
}

}  // namespace

TEST_CASE("cake adds gamma times the unbiased variance of the last rows' attention to its mean") {
  // Means 0.25 and 0.3, variances 0.045 and 0.02: equal at gamma = 2.
  CHECK(kept_of("gamma=0") == Positions{2, 3, 4});
  CHECK(kept_of("gamma=1.9") == Positions{2, 3, 4});
  CHECK(kept_of("gamma=2.1") == Positions{0, 3, 4});
  CHECK(kept_of("gamma=200") == Positions{0, 3, 4});
}

TEST_CASE("one row has no variance, so that cake with window=1 is snapkv") {
  CHECK(history(spec_of("cake:budget=20:window=1"), kShape, random_logit) ==
        history(spec_of("snapkv:budget=20:window=1"), kShape, random_logit));
}

TEST_CASE("cake gives layers the budgets that layers= names") {
  Shape shape = kShape;
  shape.layers = 2;
  shape.decode = 0;
  std::vector<std::size_t> held;
  for (shape.layer = 0; shape.layer < 2; ++shape.layer) {
    held.push_back(history(spec_of("cake:budget=16:window=4:layers=3/1"), shape, random_logit).front().front().size());
  }
  // One token each, and 30 others 3 to 1.
  CHECK(held == std::vector<std::size_t>{24, 8});
}
