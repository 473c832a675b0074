#include "kernels/cuda/slot_schedule.hpp"

#include <algorithm>

#include "sim/policy/layer_policy.hpp"
#include "tests/catch.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

// One head under the policy's object and under the schedule, step by step.
void follow(const std::string& text, std::uint32_t prompt, std::uint32_t window, std::uint32_t steps) {
  INFO(text << ", prompt " << prompt << ", window " << window);
  const PolicySpec spec = parse_policies(text).at(0);
  ModelShape shape;
  shape.layers = shape.heads = shape.kv_heads = 1;
  shape.layer_windows = {window};
  const auto policy = device_policy(spec, shape);
  REQUIRE(policy);
  PolicyContext context;
  context.prompt = prompt;
  context.window = window;
  context.requested_new_tokens = steps;
  LayerPolicy object(spec, context, 1, 1);
  for (std::uint32_t i = 0; i < prompt; ++i) object.admit(HeadId(0), TokenPos(i));
  object.finish_row(TokenPos(prompt - 1));
  const std::span<const TokenPos> survivors = object.positions(HeadId(0));
  std::vector<std::uint32_t> slots;  // the token in each, as the schedule places them
  for (const TokenPos position : survivors) slots.push_back(position.value);
  std::sort(slots.begin(), slots.end());
  SlotSchedule schedule(*policy, context, static_cast<std::uint32_t>(slots.size()));
  for (std::uint32_t position = prompt; position < prompt + steps; ++position) {
    INFO("position " << position);
    object.admit(HeadId(0), TokenPos(position));
    const std::span<const TokenPos> met = object.positions(HeadId(0));
    const StepRow row = schedule.admit(position);
    REQUIRE(row.length == met.size());
    if (!policy->keeps_scores()) {
      REQUIRE(row.slot <= slots.size());
      if (row.slot == slots.size()) slots.push_back(0);
      slots[row.slot] = position;
      std::vector<std::uint32_t> here = slots, there;
      for (const TokenPos token : met) there.push_back(token.value);
      std::sort(here.begin(), here.end());
      std::sort(there.begin(), there.end());
      REQUIRE(here == there);
    }
    object.finish_row(TokenPos(position));
    const std::vector<TokenPos>& gone = object.eviction(HeadId(0)).evicted;
    if (!policy->keeps_scores()) {
      REQUIRE(gone.size() == (schedule.evicted() == kNoToken ? 0U : 1U));
      if (!gone.empty()) REQUIRE(gone[0].value == schedule.evicted());
    } else if (schedule.drops() > 0) {
      schedule.dropped(static_cast<std::uint32_t>(gone.size()));
    }
    REQUIRE(schedule.held() == object.rows_held());
  }
}

}  // namespace

TEST_CASE("a schedule of slots holds and gives up the tokens that the policy's object does, without scores") {
  for (const std::uint32_t prompt : {1U, 3U, 8U, 9U, 20U}) {
    for (const char* policy : {"full", "window:budget=8", "window:budget=1", "window:budget=0.5"}) {
      for (const std::uint32_t window : {0U, 1U, 5U, 8U, 9U, 30U}) follow(policy, prompt, window, 40);
    }
    for (const char* policy : {"streaming:budget=8", "streaming:budget=5", "streaming:budget=0.5:sinks=3",
                               "streaming:budget=9:sinks=2:when=prefill"}) {
      follow(policy, prompt, 0, 40);
    }
  }
}

TEST_CASE("where scores decide, a schedule knows how many tokens each row meets") {
  for (const std::uint32_t prompt : {1U, 8U, 9U, 20U}) {
    for (const std::uint32_t window : {0U, 5U, 8U, 9U, 30U}) {
      for (const char* policy : {"h2o:budget=8", "keyformer:budget=4"}) follow(policy, prompt, window, 40);
    }
    for (const char* policy : {"h2o:budget=0.5@current", "h2o:budget=8:when=prefill", "scissorhands:budget=8:drop=3",
                               "scissorhands:budget=8:recent=2:drop=1", "scissorhands:budget=0.9:recent=2:drop=0.4"}) {
      follow(policy, prompt, 0, 40);
    }
  }
}

TEST_CASE("policies whose heads would hold more and fewer tokens, or that have no recipe, stay on the host") {
  ModelShape shape;
  shape.layers = 2;
  shape.heads = shape.kv_heads = 1;
  const auto on_device = [&](const char* text) { return device_policy(parse_policies(text).at(0), shape).has_value(); };
  CHECK_FALSE(on_device("random:budget=8"));
  CHECK_FALSE(on_device("scissorhands:budget=8:prompt=stream"));
  CHECK_FALSE(on_device("window:budget=0.5@current"));
  CHECK(on_device("h2o:budget=0.5@current"));
  CHECK(on_device("streaming:budget=8"));
  CHECK(on_device("tova:budget=8"));
  CHECK_FALSE(on_device("tova:budget=8:when=2"));
  shape.layer_windows = {0, 16};
  CHECK_FALSE(on_device("h2o:budget=0.5@current"));
  CHECK_FALSE(on_device("h2o:budget=8:when=prefill"));
  CHECK_FALSE(on_device("scissorhands:budget=8"));
  CHECK_FALSE(on_device("tova:budget=8"));
  CHECK_FALSE(on_device("streaming:budget=8"));
  CHECK(on_device("h2o:budget=8"));
  CHECK(on_device("full"));
}
