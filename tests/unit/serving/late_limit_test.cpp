// Simulations of which only is asked whether requests are in time.
#include <limits>

#include "sim/serving/disaggregated.hpp"
#include "tests/catch.hpp"
#include "tests/support/hand_costs.hpp"

namespace kvroof {
namespace {

using test::HandCosts;
using test::limits_of;

constexpr std::size_t kWarmUp = 20;
constexpr double kFirstToken = 12, kToken = 1.9;  // seconds, which about half of the requests miss

std::vector<Request> more_than_are_served() {
  return draw_requests({.count = 200, .rate = 0.3, .prompt = 12, .output = 5, .spread = 0.8, .seed = 3});
}

// By what became of all of them, in the words of the definition.
std::size_t late_among(const ServingOutcome& whole) {
  std::size_t late = 0;
  for (std::size_t i = kWarmUp; i < whole.requests.size(); ++i) {
    const ServedRequest& r = whole.requests[i];
    const double tokens = r.request.output - 1;
    const bool slow = tokens > 0 && (r.finished - r.first_token) / tokens > kToken;
    if (slow || r.first_token - r.request.arrival > kFirstToken) ++late;
  }
  return late;
}

template <class Setup, class Simulate>
void check_limits(Setup setup, Simulate simulate) {
  const ServingOutcome whole = simulate(setup);
  const std::size_t late = late_among(whole);
  REQUIRE(late > 20);
  REQUIRE(late < 150);
  for (std::size_t most = 0; most <= late + 2; ++most) {
    setup.late = LateLimit{kFirstToken, kToken, kWarmUp, most};
    const ServingOutcome limited = simulate(setup);
    CAPTURE(most, late);
    CHECK(limited.gave_up == (late > most));
    if (most >= late) CHECK(limited.seconds == whole.seconds);
    if (most < late / 2) CHECK(limited.seconds < whole.seconds);
  }
}

TEST_CASE("a simulation ends early exactly where more requests than may be miss either goal") {
  const std::vector<Request> requests = more_than_are_served();
  const HandCosts costs;
  check_limits(ServingSetup{limits_of(4, 100), 1, 0},
               [&](const ServingSetup& setup) { return simulate_serving(costs, setup, requests); });
  const DisaggregatedSetup apart{limits_of(4, 100), limits_of(4, 100), 1, 1, {10, 0}, 0};
  check_limits(apart, [&](const DisaggregatedSetup& setup) {
    return simulate_disaggregated(costs, costs, setup, requests);
  });
}

}  // namespace
}  // namespace kvroof
