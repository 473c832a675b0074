// Drafted tokens in the scheduler: how many stay, and what a step then makes, with times that a hand can add up.
#include "sim/serving/drafts.hpp"

#include <cmath>
#include <set>

#include "sim/serving/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/support/hand_costs.hpp"

namespace kvroof {
namespace {

using test::HandCosts;
using test::limits_of;

SchedulerLimits drafting(std::uint32_t tokens, double acceptance, std::uint32_t step_tokens = 100) {
  SchedulerLimits limits = limits_of(8, step_tokens);
  limits.drafts = {tokens, acceptance, 1};
  return limits;
}

ServingOutcome outcome_of(const SchedulerLimits& limits, const std::vector<Request>& requests,
                          const HandCosts& costs = {}) {
  return simulate_serving(costs, {limits, 1, 0}, requests);
}

}  // namespace

TEST_CASE("k drafted tokens and more stay with the chance of one to the power of k") {
  constexpr std::uint32_t kDraws = 200000, kTokens = 4;
  const Drafts drafts{kTokens, 0.7, 11};
  std::vector<double> more(kTokens + 2);
  double sum = 0;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const std::uint32_t made = drafts.made(i / 100, i % 100);
    REQUIRE(made >= 1);
    REQUIRE(made <= kTokens + 1);
    for (std::uint32_t k = 1; k < made; ++k) ++more[k];
    sum += made;
  }
  for (std::uint32_t k = 1; k <= kTokens; ++k) {
    const double chance = std::pow(0.7, k);
    CHECK(more[k] / kDraws == Approx(chance).margin(4 * std::sqrt(chance * (1 - chance) / kDraws)));
  }
  CHECK(sum / kDraws == Approx((1 - std::pow(0.7, 5)) / 0.3).epsilon(0.01));
}

TEST_CASE("draws depend on seed, request and step alone") {
  const Drafts drafts{16, 0.9, 5}, same{16, 0.9, 5}, other{16, 0.9, 6};
  std::set<std::uint32_t> by_step, by_request;
  bool differs = false;
  for (std::uint32_t i = 0; i < 50; ++i) {
    CHECK(drafts.made(3, i) == same.made(3, i));
    differs = differs || drafts.made(3, i) != other.made(3, i);
    by_step.insert(drafts.made(3, i));
    by_request.insert(drafts.made(i, 3));
  }
  CHECK(differs);
  CHECK(by_step.size() > 5);
  CHECK(by_request.size() > 5);
}

TEST_CASE("a step makes one token where no draft stays and one more than it drafts where all do") {
  CHECK(Drafts{}.made(1, 2) == 1);
  CHECK(Drafts{4, 0, 1}.made(1, 2) == 1);
  CHECK(Drafts{4, 1, 1}.made(1, 2) == 5);
}

TEST_CASE("an answer whose drafts all stay takes a step for each of as many tokens, the last one fewer") {
  // Prompt 2 s; 1 token, then 4, 4 and the last 2 of 11.
  const ServingOutcome o = outcome_of(drafting(3, 1), {{0, 20, 11}});
  CHECK(o.requests[0].first_token == Approx(2));
  CHECK(o.requests[0].finished == Approx(2 + 3));
  CHECK(o.totals.steps == 4);
  CHECK(o.totals.answer_steps == 3);
  CHECK(o.totals.answer_tokens == 10);
  CHECK(o.gaps.count() == 3);  // tokens of a step come together
  CHECK(summarise_serving(o).token.mean == Approx(0.3));
  CHECK(summarise_serving(o).tokens_per_s == Approx(11.0 / 5));
}

TEST_CASE("drafts that never stay change no time") {
  const std::vector<Request> requests = {{0, 20, 7}, {1.5, 40, 3}, {2, 5, 1}};
  const ServingOutcome plain = outcome_of(limits_of(8, 100), requests), never = outcome_of(drafting(3, 0), requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CHECK(never.requests[i].first_token == plain.requests[i].first_token);
    CHECK(never.requests[i].finished == plain.requests[i].finished);
  }
}

TEST_CASE("drafted tokens count among those of a step, so that less of a prompt fits beside them") {
  // Ten tokens a step: beside an answer that drafts three, six of a prompt; 18 tokens are three steps of 1 + 0.6 s.
  const ServingOutcome o = outcome_of(drafting(3, 0, 10), {{0, 5, 9}, {0.2, 18, 1}});
  CHECK(o.requests[1].placed == Approx(0.5));
  CHECK(o.requests[1].first_token == Approx(0.5 + 3 * 1.6));
}

TEST_CASE("a request's draws are the same at whatever rate requests come") {
  std::vector<Request> slow, fast;
  for (int i = 0; i < 20; ++i) {
    slow.push_back({100.0 * i, 20, 40});
    fast.push_back({0.5 * i, 20, 40});
  }
  const ServingOutcome a = outcome_of(drafting(4, 0.6), slow), b = outcome_of(drafting(4, 0.6), fast);
  CHECK(a.totals.answer_steps == b.totals.answer_steps);
  CHECK(a.totals.answer_tokens == 20U * 39);
  // Each step has a draw of its own.
  const Drafts drafts = drafting(4, 0.6).drafts;
  std::uint64_t steps = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    std::uint32_t made = 0, step = 0;
    while (made < 39) made += drafts.made(i, step++);
    steps += step;
  }
  CHECK(a.totals.answer_steps == steps);
  // Alone, an answer takes a second for each of its steps: those that were drawn for it.
  double seconds = 0;
  for (const ServedRequest& r : a.requests) seconds += r.finished - r.first_token;
  CHECK(seconds == Approx(static_cast<double>(a.totals.answer_steps)));
}

TEST_CASE("a sequence that loses its place goes on with the draws of the steps that it has not made") {
  // Two sequences outgrow 60 bytes; the newer is computed anew.
  HandCosts costs(60);
  SchedulerLimits limits = drafting(2, 0.5);
  limits.admits_by_prompt = true;
  const std::vector<Request> requests = {{0, 20, 20}, {0, 20, 20}};
  const ServingOutcome tight = outcome_of(limits, requests, costs), wide = outcome_of(limits, requests);
  CHECK(tight.requests[1].preemptions > 0);
  // The step that computes it anew makes one token without drafts.
  CHECK(tight.totals.answer_tokens + tight.requests[1].preemptions == wide.totals.answer_tokens);
}

}  // namespace kvroof
