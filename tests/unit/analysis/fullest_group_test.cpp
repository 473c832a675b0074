// Prompts that come to groups by chance.
#include "analysis/fullest_group.hpp"

#include <array>
#include <cmath>

#include "tests/catch.hpp"

namespace {

double expected_fullest(std::uint32_t count, std::uint32_t groups) {
  return kvroof::FullestGroup(groups).expected(count);
}

// Over all ways in which so many may come to four groups.
double counted(std::uint32_t prompts) {
  constexpr std::uint32_t kGroups = 4;
  const auto ways = static_cast<std::uint32_t>(std::pow(kGroups, prompts));
  double sum = 0;
  for (std::uint32_t way = 0; way < ways; ++way) {
    std::array<std::uint32_t, kGroups> of_group{};
    std::uint32_t most = 0;
    for (std::uint32_t rest = way, i = 0; i < prompts; ++i, rest /= kGroups) {
      most = std::max(most, ++of_group[rest % kGroups]);
    }
    sum += most;
  }
  return sum / ways;
}

}  // namespace

TEST_CASE("the fullest group of prompts that come by chance has what counting all their ways says") {
  CHECK(expected_fullest(5, 1) == 5);
  CHECK(expected_fullest(0, 8) == 0);
  CHECK(expected_fullest(1, 8) == Approx(1));
  CHECK(expected_fullest(2, 8) == Approx(1 + 1.0 / 8));
  for (const std::uint32_t prompts : {3U, 4U, 8U, 10U}) {
    CAPTURE(prompts);
    CHECK(expected_fullest(prompts, 4) == Approx(counted(prompts)));
  }
}

TEST_CASE("of many prompts the fullest group has the mean and some deviations more, and never fewer than of one less") {
  // 200,000 draws of 64 and 200 over 8 groups, of 65 and 500 over 2 and 128.
  CHECK(expected_fullest(64, 8) == Approx(12.23).epsilon(0.002));
  CHECK(expected_fullest(200, 8) == Approx(32.339).epsilon(0.002));
  // The expected largest of eight normal numbers is 1.4236 deviations (Teichroew, 1956); of 10^6 a mean of 125,000.
  const double far = expected_fullest(1000000, 8);
  CHECK((far - 125000) / std::sqrt(125000.0) == Approx(1.4236).epsilon(0.01));
  double before = 0;
  for (std::uint32_t prompts = 1; prompts < 200; ++prompts) {
    CAPTURE(prompts);
    const double now = expected_fullest(prompts, 8);
    CHECK(now > before);
    CHECK(now >= prompts / 8.0);
    before = now;
  }
}
