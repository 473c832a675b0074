#include "sim/replay/recorded.hpp"

#include <algorithm>

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

PointResult replay_recorded(const std::string& policy, std::vector<EvictionRecord> evictions) {
  Qkv shape;
  shape.tokens = 60;
  const Qkv x = random_qkv(shape, 5);
  TraceOptions options;
  options.prompt = 20;
  options.source = "engine";
  options.policy = policy;
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

TEST_CASE("a reviewed decision takes the recorded tokens only when the head holds all of them") {
  const std::vector<EvictionRecord> recorded = {{0, 1, 0, 0, 7}, {0, 2, 0, 0, 90}};
  RecordedEvictions evictions(recorded, 1);
  const auto held = positions({4, 7, 9});
  std::vector<SlotId> victims = {SlotId(0)};
  evictions.review(StepId(1), HeadId(0), held, victims);
  CHECK(victims == std::vector<SlotId>{SlotId(1)});
  victims = {SlotId(2)};
  evictions.review(StepId(2), HeadId(0), held, victims);
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
