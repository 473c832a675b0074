// Servers of prompts and servers of answers, with times, memory and links that a hand can add up.
#include <algorithm>
#include <limits>
#include <utility>

#include "sim/serving/disaggregated.hpp"
#include "tests/catch.hpp"
#include "tests/support/hand_costs.hpp"

namespace kvroof {
namespace {

using test::HandCosts;
using test::limits_of;

constexpr double kInstantly = std::numeric_limits<double>::infinity();

DisaggregatedSetup setup_of(std::uint32_t prompts, std::uint32_t answers, double bytes_per_s, double latency = 0) {
  return {limits_of(8, 100), limits_of(8, 100), prompts, answers, {bytes_per_s, latency}, 0};
}

ServingOutcome outcome_of(const HandCosts& costs, const DisaggregatedSetup& setup,
                          const std::vector<Request>& requests) {
  return simulate_disaggregated(costs, costs, setup, requests);
}

std::vector<Request> drawn(double rate, std::uint32_t count = 300, std::uint32_t output = 9) {
  DrawnRequests d;
  d.count = count;
  d.rate = rate;
  d.prompt = 12;
  d.output = output;
  d.spread = 0.8;
  d.seed = 7;
  return draw_requests(d);
}

TEST_CASE("two requests: prompts one after the other, a link that carries one at a time, answers together") {
  // 10 bytes a second. Both prompts pass together, 2 + 3 s. The first cache moves from 5 to 7, the second from 7 to 10.
  // Steps of answers begin at 7 and 8, the second joins at 10 exactly: 8, 9, 10 are the first's tokens.
  DisaggregatedSetup setup = setup_of(1, 1, 10);
  const ServingOutcome o = outcome_of({}, setup, {{0, 20, 4}, {0, 30, 3}});
  CHECK(o.requests[0].first_token == Approx(5));
  CHECK(o.requests[1].first_token == Approx(5));
  CHECK(o.requests[0].transfer.begun == Approx(5));
  CHECK(o.requests[0].transfer.ended == Approx(7));
  CHECK(o.requests[1].transfer.begun == Approx(7));
  CHECK(o.requests[1].transfer.ended == Approx(10));
  CHECK(o.requests[0].finished == Approx(7 + 3));
  CHECK(o.requests[1].finished == Approx(10 + 2));
  CHECK(o.link_seconds == Approx(5));
  CHECK(o.gaps.count() == 5);
  CHECK(o.gaps.sum() == Approx((10 - 5) + (12 - 5)));  // the way of a cache is in the gap to the second token
  CHECK(o.prompt_totals.steps == 1);
  CHECK(o.totals.steps == 5);
  // A latency holds up who waits for it, and not the link.
  setup.link.latency_seconds = 0.5;
  const ServingOutcome later = outcome_of({}, setup, {{0, 20, 4}, {0, 30, 3}});
  CHECK(later.requests[0].transfer.ended == Approx(7.5));
  CHECK(later.requests[1].transfer.begun == Approx(7));
  CHECK(later.requests[1].transfer.ended == Approx(10.5));
}

TEST_CASE("over an instant link a request alone is answered as by one server that does both") {
  for (const bool first : {false, true}) {
    for (const bool ahead : {false, true}) {
      DisaggregatedSetup setup = setup_of(1, 1, kInstantly);
      setup.limits.prompts_first = setup.prompt_limits.prompts_first = first;
      setup.limits.one_ahead = setup.prompt_limits.one_ahead = ahead;
      setup.prompt_limits.arrival_seconds = setup.limits.arrival_seconds = 0.3;
      std::vector<Request> alone = drawn(1, 40);
      for (std::size_t i = 0; i < alone.size(); ++i) alone[i].arrival = 1000.0 * static_cast<double>(i);
      const ServingOutcome apart = outcome_of({}, setup, alone);
      const ServingOutcome together = simulate_serving(HandCosts{}, {setup.limits, 1, 0}, alone);
      for (std::size_t i = 0; i < alone.size(); ++i) {
        CHECK(apart.requests[i].first_token == Approx(together.requests[i].first_token));
        CHECK(apart.requests[i].finished == Approx(together.requests[i].finished));
      }
    }
  }
}

TEST_CASE("every request is answered once, every token made once, and every kept byte moved once") {
  for (const double kept : {1e9, 8.0}) {
    for (const bool by_prompt : {false, true}) {
      HandCosts costs;
      costs.kept = kept;
      costs.capacity = 120;
      DisaggregatedSetup setup = setup_of(2, 3, 25, 0.1);
      setup.limits.admits_by_prompt = setup.prompt_limits.admits_by_prompt = by_prompt;
      const std::vector<Request> requests = drawn(0.8);
      const ServingOutcome o = outcome_of(costs, setup, requests);
      std::uint64_t tokens = 0;
      double moved = 0, kept_bytes = 0, answering = 0;
      for (const ServedRequest& r : o.requests) {
        CHECK(r.placed >= r.request.arrival);
        CHECK(r.first_token > r.placed);
        tokens += r.request.output;
        answering += r.finished - r.first_token;
        if (r.request.output == 1) {
          CHECK(r.finished == r.first_token);
          CHECK(r.transfer.ended == -1);
          continue;
        }
        CHECK(r.transfer.begun >= r.first_token);
        CHECK(r.finished >= r.transfer.ended + r.request.output - 1);  // a second a token
        moved += r.transfer.bytes;
        kept_bytes += std::min<double>(r.request.prompt, kept);
      }
      CHECK(moved == Approx(kept_bytes));
      CHECK(o.link_seconds == Approx(kept_bytes / 25));
      CHECK(o.gaps.count() == tokens - o.requests.size());
      CHECK(o.gaps.sum() == Approx(answering));
      CHECK(o.totals.most_cache_bytes <= 120);
      CHECK(o.prompt_totals.most_cache_bytes <= 120);
    }
  }
}

TEST_CASE("no link carries two caches at once, on neither side") {
  const ServingOutcome o = outcome_of({}, setup_of(2, 2, 6), drawn(0.7));
  for (const bool sender : {false, true}) {
    for (std::uint32_t server = 0; server < 2; ++server) {
      std::vector<std::pair<double, double>> busy;
      for (const ServedRequest& r : o.requests) {
        const bool here = (sender ? r.transfer.from : r.replica) == server;
        if (here && r.transfer.ended >= 0) busy.emplace_back(r.transfer.begun, r.transfer.ended);
      }
      std::sort(busy.begin(), busy.end());
      REQUIRE(busy.size() > 50);
      for (std::size_t i = 1; i < busy.size(); ++i) CHECK(busy[i].first >= busy[i - 1].second - 1e-9);
    }
  }
}

TEST_CASE("a policy that keeps half of the prompts moves half of the bytes") {
  const std::vector<Request> requests(20, Request{0, 30, 5});
  HandCosts costs;
  const double all = outcome_of(costs, setup_of(1, 1, 10), requests).link_seconds;
  costs.kept = 15;
  CHECK(outcome_of(costs, setup_of(1, 1, 10), requests).link_seconds == Approx(all / 2));
}

TEST_CASE("a faster link makes no mean answer longer") {
  double before = std::numeric_limits<double>::infinity();
  for (const double bytes_per_s : {3.0, 6.0, 12.0, 24.0, 48.0, 1000.0, kInstantly}) {
    const double whole = summarise_serving(outcome_of({}, setup_of(2, 2, bytes_per_s), drawn(0.5))).whole.mean;
    CHECK(whole <= before);
    before = whole;
  }
}

TEST_CASE("prompts do not hold up answers on other servers, as they do on their own") {
  // Steps of answers take a second here whatever comes; together a prompt of 100 tokens makes a step 11 s long.
  std::vector<Request> requests = {{0, 1, 200}};
  for (int i = 0; i < 30; ++i) requests.push_back({20.0 + 5 * i, 100, 1});
  const auto p99 = [](const ServingOutcome& o) { return o.gaps.quantile(0.99); };
  CHECK(p99(outcome_of({}, setup_of(1, 1, kInstantly), requests)) == Approx(1).epsilon(0.006));
  CHECK(p99(simulate_serving(HandCosts{}, {limits_of(8, 100), 1, 0}, requests)) > 5);
}

TEST_CASE("a prompt's memory is taken until its cache is on the server of its answer") {
  // Room for one prompt of 20 with its first token. Its cache takes 10 s to go, so that the second begins at 2 + 10.
  HandCosts prompts, answers;
  prompts.capacity = 30;
  const std::vector<Request> requests = {{0, 20, 3}, {0, 20, 3}};
  const ServingOutcome o = simulate_disaggregated(prompts, answers, setup_of(1, 1, 2), requests);
  CHECK(o.requests[0].transfer.ended == Approx(12));
  CHECK(o.requests[1].placed == Approx(12));
  CHECK(o.prompt_totals.most_cache_bytes == 21);
  // Without a second token nothing stays behind.
  const ServingOutcome short_ones = simulate_disaggregated(prompts, answers, setup_of(1, 1, 2),
                                                           {{0, 20, 1}, {0, 20, 3}});
  CHECK(short_ones.requests[1].placed == Approx(2));
}

TEST_CASE("a cache sets out when its place is free, and waits with the server of its prompt until then") {
  // Whole answers are reserved: 20 + 4 bytes each, of 40. The second's place is free when the first is answered.
  HandCosts prompts, answers;
  answers.capacity = 40;
  const ServingOutcome o = simulate_disaggregated(prompts, answers, setup_of(1, 1, 10), {{0, 20, 4}, {0, 20, 4}});
  CHECK(o.requests[0].first_token == Approx(4));
  CHECK(o.requests[0].finished == Approx(4 + 2 + 3));
  CHECK(o.requests[1].transfer.begun == Approx(9));
  CHECK(o.requests[1].finished == Approx(9 + 2 + 3));
  CHECK(o.totals.most_running == 1);
  // As many places as the engine has sequences, those that are given ahead among them.
  DisaggregatedSetup one = setup_of(1, 1, 10);
  one.limits.sequences = 1;
  CHECK(outcome_of({}, one, {{0, 20, 4}, {0, 20, 4}}).requests[1].transfer.begun == Approx(9));
}

TEST_CASE("a sequence that loses its place among answers is computed anew there, and its rows move once") {
  HandCosts prompts, answers;
  answers.capacity = 30;
  DisaggregatedSetup setup = setup_of(1, 1, kInstantly);
  setup.limits.admits_by_prompt = true;
  // Prompts end at 2. From then tokens each second; with five tokens each both fill the memory, at 6.
  const ServingOutcome o = simulate_disaggregated(prompts, answers, setup, {{0, 10, 8}, {0, 10, 8}});
  CHECK(o.requests[0].finished == Approx(9));
  CHECK(o.requests[1].preemptions == 1);
  // Its prompt and its five tokens take 1.5 s at the server of answers, which makes the sixth token; then two more.
  CHECK(o.requests[1].finished == Approx(9 + 1.5 + 2));
  CHECK(o.requests[1].transfer.ended == Approx(2));
  CHECK(o.prompt_totals.steps == 1);
}

TEST_CASE("what a prefix cache has of a prompt is not computed, and moves with the rest") {
  const ServingOutcome o = outcome_of({}, setup_of(1, 1, 10), {{0, 20, 2, 15}});
  CHECK(o.requests[0].first_token == Approx(0.5));
  CHECK(o.requests[0].transfer.bytes == 20);
}

TEST_CASE("clients of a closed loop ask again when the server of their answer is done") {
  DisaggregatedSetup setup = setup_of(1, 1, 10);
  setup.clients = 2;
  std::vector<Request> requests(6, Request{5, 10, 3});
  requests[1].output = 1;  // which the server of prompts answers alone
  const ServingOutcome o = outcome_of({}, setup, requests);
  CHECK(o.requests[0].request.arrival == 0);
  CHECK(o.requests[1].request.arrival == 0);
  CHECK(o.requests[2].request.arrival == Approx(o.requests[1].finished));
  for (const ServedRequest& r : o.requests) CHECK(r.finished > r.request.arrival);
}

TEST_CASE("prompts wait as Pollaczek and Khinchine say, and caches behind them hardly") {
  // Prompts of a second at 0.8 are an M/D/1 queue: 2 s of waiting in the mean. They end no faster than one a second, so
  // that caches that take the link for a second each find no queue there.
  DrawnRequests d;
  d.count = 100000;
  d.prompt = 10;
  d.output = 2;
  d.rate = 0.8;
  d.seed = 3;
  DisaggregatedSetup setup = setup_of(1, 1, 10);
  setup.prompt_limits = limits_of(1, 10);
  const ServingOutcome o = outcome_of({}, setup, draw_requests(d));
  CHECK(summarise_serving(o).first_token.mean == Approx(2 + 1).epsilon(0.03));
  CHECK(o.prompt_totals.busy_seconds / o.seconds == Approx(0.8).epsilon(0.01));
  CHECK(o.link_seconds / o.seconds == Approx(0.8).epsilon(0.01));
  double waited = 0;
  for (const ServedRequest& r : o.requests) waited = std::max(waited, r.transfer.begun - r.first_token);
  CHECK(waited < 2);  // for the end of a step of answers, which gives places, and the rest of one cache
}

}  // namespace
}  // namespace kvroof
