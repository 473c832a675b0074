// The 20-token example: x[t][j] = 2·sin(0.7·t + 1.3·j) + cos(0.11·j·t) + (4 if j = 13), prompt 0 … 11, decode 12 … 19.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/policy_driver.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

float example_logit(std::uint32_t, std::uint32_t t, std::uint32_t j) {
  return static_cast<float>(2 * std::sin(0.7 * t + 1.3 * j) + std::cos(0.11 * j * t) + (j == 13 ? 4 : 0));
}

std::vector<Positions> run(std::string_view policy) {
  Driver driver(spec_of(policy), {.prompt = 12, .decode = 8}, example_logit);
  return kept_each_step(driver);
}

const std::vector<Positions> kH2o = {
    {0, 1, 3, 9, 10, 11},   {0, 1, 3, 10, 11, 12},  {0, 1, 3, 11, 12, 13},  {0, 1, 3, 12, 13, 14},  {0, 1, 3, 13, 14, 15},
    {0, 1, 13, 14, 15, 16}, {0, 1, 13, 15, 16, 17}, {0, 1, 13, 16, 17, 18}, {0, 1, 13, 17, 18, 19},
};

}  // namespace

TEST_CASE("h2o keeps the sets of the 20-token example at every step") { CHECK(run("h2o:budget=6:recent=3") == kH2o); }
