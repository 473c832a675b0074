// Batches that pass through stages one behind the other, and groups of devices that step together.
#include <algorithm>
#include <map>

#include "sim/serving/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/support/hand_costs.hpp"

namespace kvroof {
namespace {

using test::HandCosts;
using test::limits_of;

SchedulerLimits staged(std::uint32_t stages, std::uint64_t sequences = 64, std::uint32_t step_tokens = 1000) {
  SchedulerLimits limits = limits_of(sequences, step_tokens);
  limits.batches = stages;
  return limits;
}

ServingOutcome outcome_of(const ServingCosts& costs, const SchedulerLimits& limits,
                          const std::vector<Request>& requests, std::uint32_t groups = 1, std::uint32_t replicas = 1) {
  ServingSetup setup{limits, replicas};
  setup.groups = groups;
  return simulate_serving(costs, setup, requests);
}

// Notes how many sequences each step had.
class NotingCosts : public HandCosts {
 public:
  using HandCosts::HandCosts;
  [[nodiscard]] double step_seconds(std::span<const Decoding> sequences, std::span<const PromptPart> prompts,
                                    GroupFill fill = {}) const override {
    ++steps[sequences.size() + prompts.size()];
    return HandCosts::step_seconds(sequences, prompts, fill);
  }
  mutable std::map<std::size_t, int> steps;  // by sequences
};

// Notes what share of its own tokens a group was told that all groups have.
class FillingCosts : public HandCosts {
 public:
  [[nodiscard]] double step_seconds(std::span<const Decoding> sequences, std::span<const PromptPart> prompts,
                                    GroupFill fill) const override {
    for (const Decoding& s : sequences) answers[s.prompt] = fill.answers;
    for (const PromptPart& part : prompts) of_prompts[part.to] = fill.prompts;
    return HandCosts::step_seconds(sequences, prompts, fill);
  }
  mutable std::map<std::uint32_t, double> answers, of_prompts;  // of the last step, by length of prompt
};

std::vector<Request> drawn(double rate) {
  DrawnRequests d;
  d.count = 300;
  d.rate = rate;
  d.prompt = 12;
  d.output = 9;
  d.spread = 0.8;
  d.seed = 7;
  return draw_requests(d);
}

TEST_CASE("a request alone takes as long through stages as through one, and each of them works its part of the time") {
  for (const std::uint32_t stages : {1U, 2U, 5U}) {
    const ServingOutcome o = outcome_of(HandCosts{}, staged(stages), {{0, 20, 5}});
    CHECK(o.requests[0].first_token == Approx(2));
    CHECK(o.requests[0].finished == Approx(6));
    CHECK(o.totals.steps == 5);
    CHECK(o.totals.busy_seconds == Approx(6.0 / stages));
    CHECK(o.totals.running_seconds == Approx(6.0 / stages));
  }
}

TEST_CASE("a batch enters when the first stage is free, and waits in front of a stage for the batch before it") {
  // A prompt has each of two stages for a second, a token for half of one. The second prompt enters at 1 and leaves at
  // 3, so that the first request's token, in the first stage from 2 to 2.5, is in the second from 3 to 3.5. From then
  // on one enters as the other leaves.
  const ServingOutcome o = outcome_of(HandCosts{}, staged(2), {{0, 20, 3}, {0, 20, 3}});
  CHECK(o.requests[0].first_token == Approx(2));
  CHECK(o.requests[1].first_token == Approx(3));
  CHECK(o.requests[0].finished == Approx(3.5 + 1));
  CHECK(o.requests[1].finished == Approx(4 + 1));
  CHECK(o.totals.most_running == 2);
  CHECK(o.totals.steps == 6);
  CHECK(o.totals.busy_seconds == Approx(2 * (1 + 0.5 + 0.5)));
  CHECK(outcome_of(HandCosts{}, staged(2), {{0, 20, 2}, {0, 20, 3}}).requests[0].finished == Approx(3.5));
}

TEST_CASE("of batches that wait for the first stage the one that has waited longest enters first") {
  // Three stages. The third prompt has the first stage from 0.7 to 2.7, and the last until 6.7; the tokens of the two
  // others, which are ready at 1 and at 4 / 3, follow it a third of a second each.
  const ServingOutcome o = outcome_of(HandCosts{}, staged(3), {{0, 10, 2}, {0, 10, 2}, {0.7, 60, 1}});
  CHECK(o.requests[2].first_token == Approx(6.7));
  CHECK(o.requests[0].finished == Approx(6.7 + 1.0 / 3));
  CHECK(o.requests[1].finished == Approx(6.7 + 2.0 / 3));
}

TEST_CASE("who comes while a batch is in a later stage is in the next batch") {
  // The first stage is free from 1 on; the second has the first prompt until 2.
  const ServingOutcome o = outcome_of(HandCosts{}, staged(2), {{0, 20, 1}, {1.2, 20, 1}, {1.3, 20, 1}});
  CHECK(o.requests[1].placed == Approx(1.2));
  CHECK(o.requests[1].first_token == Approx(3.2));
  CHECK(o.requests[2].placed == Approx(2.2));  // when the first stage is free again
}

TEST_CASE("with as many batches as stages a server makes as many times the tokens of one batch, at its pace") {
  // Steps of HandCosts take a second whatever they have: two sequences on one stage make 2 tokens a second.
  const std::vector<Request> two(2, Request{0, 1, 400}), eight(8, Request{0, 1, 400});
  const ServingOutcome one = outcome_of(HandCosts{}, staged(1), two);
  const ServingOutcome four = outcome_of(HandCosts{}, staged(4), eight);
  CHECK(four.seconds == Approx(one.seconds).epsilon(0.01));
  CHECK(four.gaps.quantile(0.5) == Approx(one.gaps.quantile(0.5)).epsilon(0.02));
  CHECK(four.totals.busy_seconds / four.seconds == Approx(1).epsilon(0.01));
}

TEST_CASE("sequences are shared out evenly over batches: of all that run or have room, each takes its part") {
  const NotingCosts costs;
  outcome_of(costs, staged(3), std::vector<Request>(9, Request{0, 10, 20}));
  CHECK(costs.steps == std::map<std::size_t, int>{{3, 3 * 20}});
  // Memory for four of ten, 30 bytes each: two in each of two batches, and never all four in one.
  const NotingCosts few(120);
  const ServingOutcome o = outcome_of(few, staged(2), std::vector<Request>(10, Request{0, 10, 20}));
  CHECK(o.totals.most_running == 4);
  CHECK(few.steps.rbegin()->first == 2);
  // No more than the engine takes, in all batches.
  CHECK(outcome_of(few, staged(2, 3), std::vector<Request>(10, Request{0, 10, 20})).totals.most_running == 3);
}

TEST_CASE("where memory is short a batch that enters gives up its own, and nobody loses a place in a step") {
  HandCosts costs;
  costs.capacity = 30;
  SchedulerLimits limits = staged(2);
  limits.admits_by_prompt = true;
  // Two prompts of 10, a batch each: tokens at 1, 2, 3 … and at 1.5, 2.5, 3.5 … At 5 the first asks for its sixth, for
  // 16 bytes, while a step makes the fifth of the second, for 15.
  const ServingOutcome o = outcome_of(costs, limits, {{0, 10, 8}, {0, 10, 8}});
  CHECK(o.requests[0].preemptions == 1);
  CHECK(o.requests[1].preemptions == 0);
  CHECK(o.totals.most_cache_bytes <= 30);
  CHECK(o.requests[1].finished == Approx(8.5));
  CHECK(o.requests[0].finished == Approx(8.5 + 1.5 + 2));  // its prompt and five tokens anew
}

TEST_CASE("who has found no room is asked again when a step has ended, as soon as the first stage is free") {
  // Three stages, 19 and 9 bytes run; 11 find no room at 0.8 and at 1, when the first's answer enters the first stage
  // until 4 / 3. Meanwhile, at 3.8 / 3, the second is answered.
  HandCosts costs;
  costs.capacity = 35;
  const ServingOutcome o = outcome_of(costs, staged(3), {{0, 10, 9}, {0, 8, 1}, {0.8, 10, 1}});
  CHECK(o.requests[1].finished == Approx(3.8 / 3));
  CHECK(o.requests[2].placed == Approx(4.0 / 3));
}

TEST_CASE("through stages every token is made once, in its order, and memory holds all that run") {
  for (const std::uint32_t stages : {2U, 3U, 4U}) {
    for (const bool by_prompt : {false, true}) {
      for (const bool ahead : {false, true}) {
        HandCosts costs;
        costs.capacity = 150;
        SchedulerLimits limits = staged(stages, 12, 20);
        limits.admits_by_prompt = by_prompt;
        limits.one_ahead = ahead;
        const ServingOutcome o = outcome_of(costs, limits, drawn(0.9), 1, 2);
        double gaps = 0;
        std::uint64_t tokens = 0;
        for (const ServedRequest& r : o.requests) {
          CHECK(r.placed >= r.request.arrival);
          CHECK(r.first_token > r.placed);
          CHECK(r.finished >= r.first_token);
          gaps += r.finished - r.first_token;
          tokens += r.request.output - 1;
        }
        CHECK(o.gaps.count() == tokens);
        CHECK(o.gaps.sum() == Approx(gaps));
        CHECK(o.totals.most_cache_bytes <= 150);
        CHECK(o.totals.busy_seconds <= 2 * o.seconds);
      }
    }
  }
}

TEST_CASE("a step of groups ends for all of them when it ends for the slowest") {
  // Prompts of 2 and 4 seconds; a group has each of them.
  const ServingOutcome o = outcome_of(HandCosts{}, limits_of(8, 100), {{0, 20, 3}, {0, 40, 3}}, 2);
  for (const std::size_t i : {0U, 1U}) {
    CHECK(o.requests[i].replica == 0);
    CHECK(o.requests[i].group == i);
    CHECK(o.requests[i].first_token == Approx(4));
    CHECK(o.requests[i].finished == Approx(6));
  }
  CHECK(o.totals.steps == 3);
  CHECK(o.totals.busy_seconds == Approx(6));
  CHECK(o.totals.most_running == 2);
  CHECK(o.totals.running_seconds == Approx(12));  // of the server
}

TEST_CASE("groups that share experts know how many tokens all of them have, of prompts and of answers") {
  const FillingCosts costs;
  outcome_of(costs, limits_of(8, 100), {{0, 20, 3}, {0, 40, 3}, {0, 30, 3}}, 2);
  // One group has prompts of 20 and 30 tokens, then two answers; the other one of 40 and one.
  CHECK(costs.of_prompts.at(20) == Approx(90.0 / (2 * 50)));
  CHECK(costs.of_prompts.at(40) == Approx(90.0 / (2 * 40)));
  CHECK(costs.answers.at(30) == Approx(3.0 / (2 * 2)));
  CHECK(costs.answers.at(40) == Approx(3.0 / (2 * 1)));
}

TEST_CASE("a group that has nothing to do takes part in steps: who comes to it waits for the end of one") {
  const ServingOutcome o = outcome_of(HandCosts{}, limits_of(8, 100), {{0, 20, 5}, {0.5, 20, 2}}, 2);
  CHECK(o.requests[1].group == 1);
  CHECK(o.requests[1].placed == Approx(2));
  CHECK(o.requests[1].first_token == Approx(4));
  CHECK(o.requests[0].finished == Approx(7));  // tokens at 2, 4, 5, 6 and 7
}

TEST_CASE("each group has a memory, a limit of sequences and tokens of a step of its own") {
  HandCosts costs;
  costs.capacity = 50;
  const std::vector<Request> requests(12, Request{0, 10, 10});
  const ServingOutcome o = outcome_of(costs, limits_of(8, 100), requests, 3);
  CHECK(o.totals.most_running == 6);  // two of 20 bytes in each
  CHECK(o.totals.most_cache_bytes <= 50);
  CHECK(outcome_of(HandCosts{}, limits_of(1, 100), requests, 3).totals.most_running == 3);
  // Ten tokens a step, which one prompt takes; three steps of prompts beside each other.
  CHECK(outcome_of(HandCosts{}, limits_of(8, 10), {{0, 10, 1}, {0, 10, 1}, {0, 10, 1}}, 3).totals.steps == 1);
}

TEST_CASE("groups that have the same requests do what one does, and a server of them has so many times its sequences") {
  std::vector<Request> once = drawn(0.3), thrice;
  for (const Request& r : once) thrice.insert(thrice.end(), 3, r);
  HandCosts costs;
  costs.capacity = 100;
  for (const std::uint32_t stages : {1U, 2U}) {
    SchedulerLimits limits = staged(stages, 8, 30);
    limits.admits_by_prompt = true;
    const ServingOutcome one = outcome_of(costs, limits, once), all = outcome_of(costs, limits, thrice, 3);
    for (std::size_t i = 0; i < thrice.size(); ++i) {
      CHECK(all.requests[i].first_token == one.requests[i / 3].first_token);
      CHECK(all.requests[i].finished == one.requests[i / 3].finished);
    }
    CHECK(all.totals.steps == one.totals.steps);
    CHECK(all.totals.busy_seconds == Approx(one.totals.busy_seconds));
    CHECK(all.totals.running_seconds == Approx(3 * one.totals.running_seconds));
    CHECK(all.totals.cache_byte_seconds == Approx(one.totals.cache_byte_seconds));
    CHECK(all.totals.most_running == 3 * one.totals.most_running);
    CHECK(all.totals.most_cache_bytes == one.totals.most_cache_bytes);
  }
}

TEST_CASE("a request goes to the group that has fewest requests, of any server") {
  const std::vector<Request> requests = {{0, 10, 50}, {0.1, 10, 50}, {0.2, 10, 2}, {0.3, 10, 50}, {30, 10, 2}};
  const ServingOutcome o = outcome_of(HandCosts{}, limits_of(8, 100), requests, 2, 2);
  const auto place = [&](std::size_t i) { return std::pair(o.requests[i].replica, o.requests[i].group); };
  CHECK(place(0) == std::pair(0U, 0U));
  CHECK(place(1) == std::pair(0U, 1U));
  CHECK(place(2) == std::pair(1U, 0U));
  CHECK(place(3) == std::pair(1U, 1U));
  CHECK(place(4) == std::pair(1U, 0U));  // whose request is answered
  // The groups of one server wait for each other, those of two do not.
  CHECK(o.requests[1].first_token == Approx(1 + 1));
  CHECK(o.requests[2].first_token == Approx(0.2 + 1));
}

}  // namespace
}  // namespace kvroof
