#include "sim/replay/recorded.hpp"

#include <algorithm>
#include <limits>

#include "sim/policy/scores.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

std::vector<TokenPos> positions(std::initializer_list<std::uint32_t> list) {
  std::vector<TokenPos> out;
  for (const std::uint32_t p : list) out.emplace_back(p);
  return out;
}

// The evictions of a window of `budget` tokens, known without any of our code.
std::vector<EvictionRecord> window_evictions(std::uint32_t heads, std::uint32_t prompt, std::uint32_t tokens,
                                             std::uint32_t budget) {
  std::vector<EvictionRecord> list;
  for (std::uint32_t head = 0; head < heads; ++head) {
    for (std::uint32_t p = 0; p < prompt - budget; ++p) list.push_back({0, 0, 0, head, p});
  }
  for (std::uint32_t step = 1; step <= tokens - prompt; ++step) {
    for (std::uint32_t head = 0; head < heads; ++head) list.push_back({0, step, 0, head, prompt + step - 1 - budget});
  }
  return list;
}

constexpr auto no_scores = [](SlotId, SlotId) { return std::numeric_limits<double>::infinity(); };

// Replayed under `policy`, recorded under `recorded`, which is the same policy where it is empty.
PointResult replay_recorded(const std::string& policy, std::vector<EvictionRecord> evictions,
                            const std::string& recorded = "") {
  Qkv shape;
  shape.tokens = 60;
  const Qkv x = random_qkv(shape, 5);
  TraceOptions options;
  options.prompt = 20;
  options.source = "engine";
  options.policy = recorded.empty() ? policy : recorded;
  options.evictions = std::move(evictions);
  const TemporaryFolder folder;
  write_trace(folder.path() / "x.kvt", x, options);
  ThreadPool pool(1);
  auto results = replay(TraceReader::open(folder.path() / "x.kvt"), parse_policies("full," + policy), {}, pool);
  CHECK_FALSE(results[0].reproduction);
  return results[1];
}

}  // namespace

TEST_CASE("the replay of the recorded policy reproduces every recorded eviction") {
  const PointResult result = replay_recorded("window:budget=8", window_evictions(2, 20, 60, 8));
  REQUIRE(result.reproduction);
  CHECK(result.reproduction->decisions == 2 * 41);
  CHECK(result.reproduction->differences == 0);
  CHECK(result.reproduction->problem().empty());
}

TEST_CASE("a recorded policy is compared however its budget is written, and one that is not known is not") {
  for (const char* policy : {"window:budget=40%", "window:budget=.4", "window:budget=0.40"}) {
    INFO(policy);
    const PointResult result = replay_recorded(policy, window_evictions(2, 20, 60, 8), "window:budget=0.4");
    REQUIRE(result.reproduction);
    CHECK(result.reproduction->decisions == 2 * 41);
    CHECK(result.reproduction->differences == 0);
  }
  for (const char* recorded : {"window:budget=9", "tomorrow:budget=8", "window:budget=8:new=1", ""}) {
    TraceManifest manifest;
    manifest.policy = recorded;
    CHECK_FALSE(is_recorded_policy(manifest, parse_policies("window:budget=8").front()));
  }
}

TEST_CASE("policies that keep everything and read a part of it have no evictions to compare") {
  for (const char* policy : {"quest:budget=8", "keyformer-refcompat:budget=0.5", "scissorhands-refcompat",
                             "h2o-masked", "full"}) {
    TraceManifest manifest;
    manifest.source = "engine";
    manifest.policy = policy;
    INFO(policy);
    CHECK(is_recorded_policy(manifest, parse_policies(policy).front()));
    CHECK_FALSE(is_compared(manifest, parse_policies(policy).front(), manifest.seed));
  }
  CHECK_FALSE(replay_recorded("quest:budget=8:page=4", {}).reproduction);
}

TEST_CASE("rows that a quantised cache gave back are not rounded again for a point of the same cache") {
  TraceManifest manifest;
  PolicySpec point = parse_policies("scissorhands-4bit:budget=8").front();
  CHECK_FALSE(meets_recorded_rows(manifest, point));
  manifest.cache_type = KvType::kInt4G64;
  CHECK(meets_recorded_rows(manifest, point));
  point.kv = KvType::kInt8;
  CHECK_FALSE(meets_recorded_rows(manifest, point));
  manifest.cache_type = point.kv = KvType::kKivi4;  // whose rows change with their age
  CHECK_FALSE(meets_recorded_rows(manifest, point));
}

TEST_CASE("one recorded eviction that differs is counted once: the replay follows the recording from there on") {
  auto evictions = window_evictions(2, 20, 60, 8);
  // Head 1 gives up token 15 at step 3 in place of 14, and 14 in its turn.
  for (EvictionRecord& e : evictions) {
    if (e.head != 1 || e.step < 3) continue;
    if (e.step == 3) e.position = 15;
    if (e.step == 4) e.position = 14;
  }
  const PointResult result = replay_recorded("window:budget=8", evictions);
  REQUIRE(result.reproduction);
  CHECK(result.reproduction->decisions == 2 * 41);
  CHECK(result.reproduction->differences == 1);
  CHECK(result.reproduction->first_difference ==
        "layer 0, step 3, head 1: the replay gives up token 14, the recording token 15");
  // A window decides by age, which no rounding changes.
  CHECK(result.reproduction->problem() ==
        "1 of 82 recorded evictions differ from the replay's by more than rounding; the first: layer 0, step 3, "
        "head 1: the replay gives up token 14, the recording token 15");
}

TEST_CASE("a decision between scores within rounding may differ, one between scores further apart may not") {
  const std::vector<float> scores = {0.5F, 0.2F, 0.20001F, 0.21F, 0.9F};
  const auto held = positions({10, 11, 12, 13, 14});
  const auto reviewed = [&](std::initializer_list<std::uint32_t> ours, std::initializer_list<std::uint32_t> theirs) {
    std::vector<EvictionRecord> recorded;
    for (const std::uint32_t slot : theirs) recorded.push_back({0, 1, 0, 0, 10 + slot});
    RecordedEvictions evictions(recorded, 1);
    std::vector<SlotId> victims;
    for (const std::uint32_t slot : ours) victims.emplace_back(slot);
    const auto gap = [&](SlotId a, SlotId b) { return relative_gap(scores[a.value], scores[b.value]); };
    evictions.review(StepId(1), HeadId(0), held, gap, victims);
    return evictions.finish();
  };
  CHECK(reviewed({1}, {2}).differences == 1);
  CHECK(reviewed({1}, {2}).beyond_rounding == 0);
  CHECK(reviewed({1}, {2}).first_difference ==
        "layer 0, step 1, head 0: the replay gives up token 11, the recording token 12 (scores 5e-05 apart)");
  CHECK(reviewed({1}, {3}).beyond_rounding == 1);
  // Of several, it is those exchanged that count, and of these the furthest apart, in whatever order they come.
  CHECK(reviewed({3, 1}, {2, 3}).beyond_rounding == 0);
  CHECK(reviewed({2, 1}, {1, 0}).beyond_rounding == 1);
  CHECK(reviewed({1, 2}, {4, 3}).beyond_rounding == 1);
}

TEST_CASE("differences within rounding are accepted up to 0.5 % of the decisions, of the reference back end none") {
  Reproduction r;
  r.decisions = 1000;
  CHECK(r.problem().empty());
  r.differences = 5;
  CHECK(r.problem().empty());
  r.exact = true;
  CHECK_THAT(r.problem(), ContainsSubstring("5 of 1000 recorded evictions differ"));
  r.exact = false;
  r.differences = 6;
  CHECK_THAT(r.problem(), ContainsSubstring("6 of 1000 recorded evictions differ from the replay's, and rounding"));
}

TEST_CASE("sums of reproductions tell of the first difference beyond rounding") {
  Reproduction sum{false, 10, 1, 0, "a"};
  sum += {false, 10, 1, 1, "b"};
  sum += {false, 10, 2, 1, "c"};
  CHECK(sum.decisions == 30);
  CHECK(sum.differences == 4);
  CHECK(sum.beyond_rounding == 2);
  CHECK(sum.first_difference == "b");
}

TEST_CASE("recorded evictions that the replay never makes, and missing ones, are differences") {
  auto more = window_evictions(2, 20, 60, 8);
  more.push_back({0, 40, 0, 0, 59});
  CHECK(replay_recorded("window:budget=8", more).reproduction->differences == 1);
  auto fewer = window_evictions(2, 20, 60, 8);
  fewer.pop_back();
  const Reproduction r = *replay_recorded("window:budget=8", fewer).reproduction;
  CHECK(r.differences == 1);
  CHECK(r.decisions == 2 * 41);
}

TEST_CASE("what the recording gives up beyond the replay at one step counts once, and later steps are compared anew") {
  const std::vector<EvictionRecord> recorded = {{0, 1, 0, 0, 4}, {0, 1, 0, 0, 7}, {0, 3, 0, 0, 9}, {0, 5, 0, 0, 10},
                                                {0, 6, 0, 0, 11}};
  RecordedEvictions evictions(recorded, 1);
  const auto held = positions({4, 7, 9});
  std::vector<SlotId> victims = {SlotId(0)};
  evictions.review(StepId(1), HeadId(0), held, no_scores, victims);
  victims = {SlotId(2)};
  evictions.review(StepId(3), HeadId(0), held, no_scores, victims);
  CHECK(victims == std::vector<SlotId>{SlotId(2)});
  const Reproduction r = evictions.finish();
  CHECK(r.differences == 3);  // token 7, and the steps 5 and 6
  CHECK(r.decisions == 5);
  CHECK(r.first_difference == "layer 0, step 1, head 0: the recording gives up token 7, the replay nothing more");
}

TEST_CASE("a reviewed decision takes the recorded tokens only when the head holds all of them") {
  const std::vector<EvictionRecord> recorded = {{0, 1, 0, 0, 7}, {0, 2, 0, 0, 90}};
  RecordedEvictions evictions(recorded, 1);
  const auto held = positions({4, 7, 9});
  std::vector<SlotId> victims = {SlotId(0)};
  evictions.review(StepId(1), HeadId(0), held, no_scores, victims);
  CHECK(victims == std::vector<SlotId>{SlotId(1)});
  victims = {SlotId(2)};
  evictions.review(StepId(2), HeadId(0), held, no_scores, victims);
  CHECK(victims == std::vector<SlotId>{SlotId(2)});
  CHECK(evictions.finish().differences == 2);
}

TEST_CASE("another seed or another budget than the recorded one is not compared with the recording") {
  const PointResult result = replay_recorded("window:budget=8", window_evictions(2, 20, 60, 8));
  CHECK(result.reproduction);
  Qkv shape;
  shape.tokens = 40;
  TraceOptions options;
  options.prompt = 20;
  options.source = "engine";
  options.policy = "random:budget=8";
  const TemporaryFolder folder;
  write_trace(folder.path() / "x.kvt", random_qkv(shape, 5), options);
  ThreadPool pool(1);
  const TraceReader trace = TraceReader::open(folder.path() / "x.kvt");
  ReplayOptions seeded;
  seeded.seed = 1;
  CHECK_FALSE(replay(trace, parse_policies("random:budget=8"), seeded, pool)[0].reproduction);
  CHECK_FALSE(replay(trace, parse_policies("random:budget=9"), {}, pool)[0].reproduction);
}
