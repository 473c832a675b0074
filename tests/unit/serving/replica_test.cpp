// The scheduler, with times and memory that a hand can add up.
#include <numeric>

#include "sim/serving/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/support/hand_costs.hpp"

namespace kvroof {
namespace {

using test::HandCosts;
using test::limits_of;

ServingOutcome outcome_of(const HandCosts& costs, const SchedulerLimits& limits, const std::vector<Request>& requests,
                          std::uint32_t replicas = 1, std::uint32_t clients = 0) {
  return simulate_serving(costs, {limits, replicas, clients}, requests);
}

TEST_CASE("a request alone has its first token after its prompt and a further one each step") {
  const ServingOutcome o = outcome_of({}, limits_of(8, 100), {{0, 20, 5}});
  CHECK(o.requests[0].first_token == Approx(2));
  CHECK(o.requests[0].finished == Approx(2 + 4));
  CHECK(o.gaps.count() == 4);
  CHECK(o.totals.steps == 5);
  CHECK(o.seconds == Approx(6));
}

TEST_CASE("a prompt beside answers shares their step, which takes as much longer") {
  // The second arrives while the first's first decode step runs (2 to 3), and joins the one after (3 to 3 + 1 + 2).
  const ServingOutcome o = outcome_of({}, limits_of(8, 100), {{0, 20, 5}, {2.5, 20, 2}});
  CHECK(o.requests[1].first_token == Approx(6));
  CHECK(o.requests[1].finished == Approx(7));
  CHECK(o.requests[0].finished == Approx(8));  // steps end at 3, 6, 7, 8
}

TEST_CASE("a prompt longer than a step's tokens is computed in parts, less the answers' tokens") {
  // Ten tokens a step: 10, 10 and 5 of the prompt alone; beside one answer 9, 9 and 7.
  CHECK(outcome_of({}, limits_of(8, 10), {{0, 25, 1}}).totals.steps == 3);
  const ServingOutcome o = outcome_of({}, limits_of(8, 10), {{0, 5, 9}, {0.2, 25, 1}});
  CHECK(o.requests[1].placed == Approx(0.5));
  CHECK(o.requests[1].first_token == Approx(0.5 + 3 + 2.5));
}

TEST_CASE("prompts that go first hold up answers, which go on when all of them are computed") {
  SchedulerLimits limits = limits_of(8, 100);
  limits.prompts_first = true;
  const ServingOutcome o = outcome_of({}, limits, {{0, 20, 3}, {2.5, 20, 2}});
  CHECK(o.requests[1].first_token == Approx(3 + 2));  // a step of its own
  CHECK(o.requests[0].finished == Approx(6));         // tokens at 2, 3 and 6
}

TEST_CASE("a step that is settled one ahead takes nobody who came while the one before it ran") {
  SchedulerLimits limits = limits_of(8, 100);
  limits.one_ahead = true;
  const ServingOutcome o = outcome_of({}, limits, {{0, 20, 9}, {2.5, 20, 2}});
  CHECK(o.requests[1].first_token == Approx(4 + 3));  // not in the step from 3 to 4, but in that which begins at 4
  // Where nothing runs there is no step to wait for.
  CHECK(outcome_of({}, limits, {{0, 20, 1}, {9, 20, 1}}).requests[1].first_token == Approx(11));
}

TEST_CASE("a request reaches the queue so many seconds after it arrives") {
  SchedulerLimits limits = limits_of(8, 100);
  limits.arrival_seconds = 0.25;
  CHECK(outcome_of({}, limits, {{0, 20, 1}}).requests[0].first_token == Approx(2.25));
}

TEST_CASE("no more sequences run than the engine takes, the others wait in the order of their arrival") {
  const ServingOutcome o = outcome_of({}, limits_of(1, 100), {{0, 10, 2}, {0, 10, 2}, {0, 10, 2}});
  CHECK(o.totals.most_running == 1);
  for (std::size_t i = 0; i < 3; ++i) CHECK(o.requests[i].finished == Approx(2.0 * (static_cast<double>(i) + 1)));
  CHECK(o.waiting_at_end == 2);  // those before the last, for all arrive before the first step
}

TEST_CASE("a request gets its place when a step has tokens left for its prompt, not when memory has room alone") {
  // Ten tokens a step are half of a prompt: one is computed after the other, a second each half.
  const std::vector<Request> requests = {{0, 20, 1}, {0, 20, 1}, {0, 20, 1}, {0, 20, 1}, {2.5, 20, 1}};
  for (const bool first : {false, true}) {
    SchedulerLimits limits = limits_of(8, 10);
    limits.prompts_first = first;
    const ServingOutcome o = outcome_of({}, limits, requests);
    CHECK(o.totals.most_running == 1);
    CHECK(o.waiting_at_end == 2);  // the first has its token at 2, the second is being computed
    CHECK(o.totals.most_cache_bytes == 21);
  }
  // What a step has left beside half a prompt begins the next.
  CHECK(outcome_of({}, limits_of(8, 10), {{0, 15, 1}, {0, 15, 1}, {0, 15, 1}}).totals.most_running == 2);
  // Answers take a token each, so that two of them leave none of two.
  const ServingOutcome o = outcome_of({}, limits_of(8, 2), {{0, 1, 9}, {0, 1, 3}, {0, 1, 1}});
  CHECK(o.totals.most_running == 2);
  CHECK(o.requests[2].placed == Approx(o.requests[1].finished));
}

TEST_CASE("an engine that reserves whole answers gives a place when the largest cache fits") {
  HandCosts costs;
  costs.capacity = 50;
  const ServingOutcome o = outcome_of(costs, limits_of(8, 100), {{0, 10, 10}, {0, 10, 10}, {0, 10, 10}});
  CHECK(o.totals.most_running == 2);  // 20 bytes each
  CHECK(o.totals.most_cache_bytes <= 50);
  for (const ServedRequest& r : o.requests) CHECK(r.preemptions == 0);
}

TEST_CASE("caches that outgrow the memory cost the newest sequence its place, and it is computed anew") {
  HandCosts costs;
  costs.capacity = 30;
  SchedulerLimits limits = limits_of(8, 100);
  limits.admits_by_prompt = true;
  // Two prompts of 10 fit at once; at five tokens each they fill the memory, and the second has to wait for the first.
  const ServingOutcome o = outcome_of(costs, limits, {{0, 10, 8}, {0, 10, 8}});
  CHECK(o.requests[0].preemptions == 0);
  CHECK(o.requests[1].preemptions == 1);
  CHECK(o.totals.most_cache_bytes <= 30);
  // Prompts end at 2; tokens at 3, 4, 5 and 6 make five each; then the first goes on alone and ends at 9.
  CHECK(o.requests[0].finished == Approx(9));
  // Its prompt and its five tokens take 1.5 s again, which makes the sixth token; then two more.
  CHECK(o.requests[1].finished == Approx(9 + 1.5 + 2));
}

TEST_CASE("a policy that keeps half lets twice as many run at once") {
  HandCosts costs;
  costs.capacity = 80;
  const std::vector<Request> requests(16, Request{0, 10, 10});
  CHECK(outcome_of(costs, limits_of(16, 1000), requests).totals.most_running == 4);
  costs.kept = 10;
  CHECK(outcome_of(costs, limits_of(16, 1000), requests).totals.most_running == 8);
}

TEST_CASE("a request goes to the replica that has fewest") {
  const ServingOutcome o = outcome_of({}, limits_of(8, 100), {{0, 10, 50}, {0.5, 10, 2}, {0.6, 10, 2}, {30, 10, 2}}, 2);
  CHECK(o.requests[0].replica == 0);
  CHECK(o.requests[1].replica == 1);
  CHECK(o.requests[2].replica == 0);
  CHECK(o.requests[3].replica == 1);  // the first replica still has the long answer
}

TEST_CASE("in a closed loop a client sends its next request when the one before is answered") {
  const ServingOutcome o = outcome_of({}, limits_of(8, 100), std::vector<Request>(6, Request{5, 10, 3}), 1, 2);
  CHECK(o.totals.most_running == 2);
  CHECK(o.requests[0].request.arrival == 0);
  CHECK(o.requests[1].request.arrival == 0);
  for (std::size_t i = 2; i < 6; ++i) CHECK(o.requests[i].request.arrival == Approx(o.requests[i - 2].finished));
}

TEST_CASE("clients that pause are as many as requests come in the time of an answer and a pause") {
  // The interactive response time law (Denning and Buzen 1978), which holds whatever the server does.
  const std::vector<Request> requests(4000, Request{0, 10, 3});
  for (const std::uint32_t clients : {3U, 12U, 40U}) {
    const std::vector<double> pauses = draw_pauses(4000, 25, 11);
    ServingSetup setup{limits_of(8, 100), 1, clients};
    setup.pauses = pauses;
    const ServingOutcome o = simulate_serving(HandCosts{}, setup, requests);
    double answers = 0, waited = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      answers += o.requests[i].finished - o.requests[i].request.arrival;
      waited += pauses[i];
    }
    const double rate = 4000 / o.requests.back().request.arrival;
    CHECK(rate * (answers + waited) / 4000 == Approx(clients).epsilon(0.02));
  }
  CHECK(draw_pauses(4000, 25, 11) == draw_pauses(4000, 25, 11));
  CHECK(draw_pauses(4000, 25, 11) != draw_pauses(4000, 25, 12));
}

TEST_CASE("every token is made once, and the gaps of an answer add up to its time") {
  DrawnRequests drawn;
  drawn.count = 300;
  drawn.rate = 0.4;
  drawn.prompt = 12;
  drawn.output = 9;
  drawn.spread = 0.8;
  drawn.seed = 7;
  HandCosts costs;
  costs.capacity = 100;
  for (const bool by_prompt : {false, true}) {
    for (const bool first : {false, true}) {
      SchedulerLimits limits = limits_of(6, 16);
      limits.admits_by_prompt = by_prompt;
      limits.prompts_first = first;
      const ServingOutcome o = outcome_of(costs, limits, draw_requests(drawn), 2);
      std::uint64_t tokens = 0;
      double answering = 0;
      for (const ServedRequest& r : o.requests) {
        CHECK(r.placed >= r.request.arrival);
        CHECK(r.first_token > r.placed);
        CHECK(r.finished >= r.first_token);
        tokens += r.request.output;
        answering += r.finished - r.first_token;
      }
      CHECK(o.gaps.count() == tokens - o.requests.size());
      CHECK(o.gaps.sum() == Approx(answering));
    }
  }
}

TEST_CASE("one server of prompts alone has the waiting time of Pollaczek and Khinchine") {
  // M/D/1 at 0.8: requests wait 0.8 / (2 (1 - 0.8)) = 2 times what one takes, and then for their own.
  DrawnRequests drawn;
  drawn.count = 200000;
  drawn.prompt = 10;  // a second each
  drawn.rate = 0.8;
  drawn.seed = 3;
  const ServingOutcome o = outcome_of({}, limits_of(1, 10), draw_requests(drawn));
  const ServingSummary s = summarise_serving(o);
  CHECK(s.first_token.mean == Approx(2 + 1).epsilon(0.03));
  CHECK(o.totals.busy_seconds / o.seconds == Approx(0.8).epsilon(0.01));
  // Constant arrivals below the rate of service never wait.
  drawn.burstiness = 0;
  CHECK(summarise_serving(outcome_of({}, limits_of(1, 10), draw_requests(drawn))).first_token.p99 == Approx(1));
}

}  // namespace
}  // namespace kvroof
