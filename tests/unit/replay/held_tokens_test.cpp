// What a policy holds by its budget and schedule alone, against what a replay of it holds, at the recorded lengths and
// projected to others.
#include "sim/policy/held_tokens.hpp"

#include "sim/replay/replay.hpp"
#include "sim/traffic/summary.hpp"
#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "traces/nominal_trace.hpp"

using namespace kvroof;
using kvroof::test::TemporaryFolder;

namespace {

struct Lengths {
  std::uint32_t prompt, output;
};

// `windows`: of copies of the recording's layer, where there are any.
std::vector<PointResult> replayed(const std::vector<PolicySpec>& points, Lengths lengths,
                                  const std::vector<std::uint32_t>& windows = {}) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "nominal.kvt";
  write_nominal_trace(path, {.query_heads = 2, .prompt = lengths.prompt, .output = lengths.output, .seed = 5});
  ThreadPool pool(1);
  ReplayOptions options;
  options.measure = {.recall = false, .output_error = false};
  options.windows_of_copies = windows;
  return replay(TraceReader::open_attention(path), points, options, pool);
}

const std::vector<std::string> kPolicies = {
    "h2o:budget=20:when=8",           "h2o:budget=0.3:when=16",       "h2o:budget=0.5@current:when=4",
    "h2o:budget=20:when=prefill",     "window:budget=90",             "r-kv:budget=0.4:window=4:when=8",
    "scissorhands:budget=20:recent=3", "scissorhands:budget=0.9",      "scissorhands:budget=0.3:drop=5:recent=4",
    "scissorhands:budget=20:drop=1",  "scissorhands:budget=30:prompt=stream", "tova:budget=70", "full"};

std::vector<PolicySpec> specs() {
  std::vector<PolicySpec> points;
  for (const std::string& text : kPolicies) points.push_back(parse_policies(text).at(0));
  return points;
}

Room room_of(const PointResult& result) {
  const bool grows = result.spec.budget.kind == Budget::Kind::kUnlimited ||
                     result.traits.schedule == Schedule::kPrefillOnly;
  const TokensAt tokens = [&result](std::uint32_t prompt, std::uint32_t step, std::uint32_t window) {
    return tokens_after_eviction(result.spec, result.traits, result.spec.budget, prompt, step, window);
  };
  return {tokens, tokens, grows ? 1 : result.traits.interval};
}

}  // namespace

TEST_CASE("what a head holds after each step follows from its budget and the policy's schedule") {
  for (const Lengths lengths : {Lengths{60, 75}, {10, 100}, {97, 40}}) {
    for (const PointResult& result : replayed(specs(), lengths)) {
      const Residency held = result.residency.at(0).expand();
      const Room room = room_of(result);
      for (std::uint32_t step = 0; step <= lengths.output; ++step) {
        INFO(result.spec.text() << ", " << lengths.prompt << " tokens, step " << step);
        REQUIRE(held.at(step, 0).resident ==
                held.storage_heads * (room.target(lengths.prompt, step, 0) + room.since_eviction(step)));
      }
    }
  }
}

TEST_CASE("a projection holds what a replay of such lengths holds, where that does not depend on attention") {
  const Lengths longer{240, 150};
  const std::vector<PolicySpec> points = specs();
  const auto recorded = replayed(points, {80, 50}), expected = replayed(points, longer);
  ModelShape shape;
  shape.layers = 1;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = shape.v_head_dim = 8;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Residency from = recorded[i].residency.at(0).expand(), to = expected[i].residency.at(0).expand();
    const Residency projected = project(from, shape, shape, {longer.prompt, longer.output}, room_of(recorded[i]));
    for (std::uint32_t step = 0; step <= longer.output; ++step) {
      INFO(points[i].text() << ", step " << step);
      REQUIRE(projected.at(step, 0).resident == to.at(step, 0).resident);
    }
  }
}

TEST_CASE("copies of a recorded layer are replayed each at its depth and behind its window") {
  const std::string policies = "pyramidkv:budget=40:window=4,h2o:budget=40:layers=3/2/1/1,full";
  const std::vector<PointResult> results = replayed(parse_policies(policies), {100, 8}, {0, 30, 0, 30});
  // A pyramid of mean 36 beside its window, from 36 / 20 in the last layer to twice the mean less that, 23 apart.
  const std::vector<std::vector<std::uint64_t>> after_prompt = {{75, 30, 29, 6}, {68, 30, 23, 23}, {100, 30, 100, 30}};
  for (std::size_t p = 0; p < results.size(); ++p) {
    const Residency held = results[p].residency.at(0).expand();
    INFO(results[p].spec.text());
    REQUIRE(held.layers == 4);
    for (std::uint32_t layer = 0; layer < 4; ++layer) CHECK(held.at(0, layer).resident == after_prompt[p][layer]);
  }
}
