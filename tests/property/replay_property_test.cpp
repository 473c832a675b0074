// What must hold of every replay, whatever the tensors.
#include <map>
#include <tuple>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/policy_laws.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

struct Event {
  std::uint32_t point, step, layer, head;
  std::vector<TokenPos> kept;
  friend bool operator==(const Event&, const Event&) = default;
};

// Kept sets and recalls in the order in which they were shown.
struct Log final : ReplayObserver {
  bool keep = true;
  bool wants_kept(StepId, StepId) override { return keep; }
  void kept(const KeptSet& s) override {
    events.push_back({s.point, s.step.value, s.layer.value, s.head, {s.positions.begin(), s.positions.end()}});
  }
  void quality(const QualityValue& v) override {
    recalls[{v.step.value, v.layer.value, v.query_head}].push_back(v.quality.recall);
  }
  std::vector<Event> events;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::vector<double>> recalls;  // one a point
};

Qkv shape_of(std::uint32_t tokens, std::uint32_t heads = 4, std::uint32_t kv_heads = 2, std::uint32_t d = 16) {
  Qkv shape;
  shape.layers = 2;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.tokens = tokens;
  shape.d = d;
  return shape;
}

std::vector<PointResult> run(const Qkv& x, std::uint32_t prompt, const std::string& policies, Log& log,
                             unsigned threads = 2) {
  const TemporaryFolder folder;
  TraceOptions options;
  options.prompt = prompt;
  write_trace(folder.path() / "x.kvt", x, options);
  ThreadPool pool(threads);
  ReplayOptions replay_options;
  replay_options.observer = &log;
  const std::vector<float> projection(std::size_t{x.heads} * x.d, 0.25F);
  replay_options.token_kinds = [](const TraceSequence& s) { return std::vector<TokenKind>(s.tokens); };
  replay_options.output_projection = [&](LayerId) -> RowsView {
    return {reinterpret_cast<const std::byte*>(projection.data()), DType::kF32, projection.size(), projection.size(),
            1};
  };
  return replay(TraceReader::open(folder.path() / "x.kvt"), parse_policies(policies), replay_options, pool);
}

// Every policy of the table but full, at this budget.
std::string all_policies(const std::string& budget) {
  std::string text;
  for (const PolicyInfo& info : policy_table()) {
    if (info.takes_budget) text += std::string(text.empty() ? "" : ",") + std::string(info.name) + ":budget=" + budget;
  }
  return text;
}

}  // namespace

TEST_CASE("a replay gives the same results for 1, 2 and 7 threads") {
  const Qkv x = random_qkv(shape_of(120), 3, 1.2);
  const std::string policies =
      "full,h2o:budget=0.3:group=none,scissorhands:budget=20:prompt=stream," + all_policies("0.25");
  for (const bool keep : {true, false}) {
    std::vector<std::vector<PointResult>> results;
    std::vector<Log> logs(3);
    for (std::size_t i = 0; i < 3; ++i) {
      logs[i].keep = keep;
      results.push_back(run(x, 60, policies, logs[i], i == 0 ? 1 : i == 1 ? 2 : 7));
    }
    for (std::size_t i = 1; i < 3; ++i) {
      CHECK(logs[i].events == logs[0].events);
      CHECK(logs[i].recalls == logs[0].recalls);
      for (std::size_t p = 0; p < results[0].size(); ++p) {
        CHECK(results[i][p].residency[0].expand().cells == results[0][p].residency[0].expand().cells);
        CHECK(results[i][p].quality->recall_mean == results[0][p].quality->recall_mean);
        CHECK(results[i][p].quality->recall_worst1 == results[0][p].quality->recall_worst1);
        CHECK(*results[i][p].quality->output_error == *results[0][p].quality->output_error);
      }
    }
  }
}

TEST_CASE("no policy recalls more than the oracle at the same budget, at any step, layer and head") {
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    const Qkv x = random_qkv(shape_of(100), seed, 0.4 * seed + 0.4);
    std::string others;
    for (const PolicySpec& spec : parse_policies(all_policies(seed == 1 ? "5" : "0.5"))) {
      if (exempt(law::kOracle, spec).empty()) others += (others.empty() ? "" : ",") + spec.text();
    }
    Log log;
    run(x, 50, "oracle:budget=" + std::string(seed == 1 ? "5" : "0.5") + "," + others, log);
    for (const auto& [where, recalls] : log.recalls) {
      for (const double recall : recalls) {
        CHECK(recall <= recalls.front() + 1e-12);
        CHECK(recall >= 0);
      }
    }
  }
}

TEST_CASE("a budget of all tokens equals full attention, for every policy") {
  const Qkv x = random_qkv(shape_of(80), 9);
  Log log;
  const auto results = run(x, 40, "full," + all_policies("80"), log);
  const Residency full = results.front().residency[0].expand();
  for (const PointResult& result : results) {
    CAPTURE(result.spec.text());
    CHECK(result.quality->recall_worst1 == 1);
    CHECK(*result.quality->output_error == 0);
    const Residency r = result.residency[0].expand();
    for (std::uint32_t step = 0; step <= r.steps; ++step) {
      const LayerCounts& counts = r.at(step, 1);
      const LayerCounts& expected = full.at(step, 1);
      const std::uint32_t sets = r.storage_heads / full.storage_heads;  // of query heads, one each
      CHECK(counts.resident == r.storage_heads * (40 + step));
      // A policy that selects may read a row once for each query head of the group, of which there are two.
      CHECK(counts.attended >= sets * expected.attended);
      CHECK(counts.attended <= (result.traits.selects ? 2 : sets) * expected.attended);
      CHECK(counts.written == sets * expected.written);
      CHECK(counts.allocated == sets * expected.allocated);
      CHECK(counts.moved == 0);
    }
  }
}

TEST_CASE("a larger window never recalls less: its sets are nested") {
  const Qkv x = random_qkv(shape_of(100), 4);
  Log log;
  run(x, 50, "window:budget=5,window:budget=10,window:budget=20,window:budget=40", log);
  for (const auto& [where, recalls] : log.recalls) CHECK(std::is_sorted(recalls.begin(), recalls.end()));
}

TEST_CASE(
    "weights at initialisation do not tell policies apart: at 50 % and as many tokens as the prompt, each recalls "
    "0.346") {
  // Normalised inputs of width 256 through weights of standard deviation 0.02 make q and k of deviation 0.02 · √256.
  const Qkv x = random_qkv(shape_of(600, 2, 2, 64), 8, 0.32);
  Log log;
  log.keep = false;
  const auto results = run(x, 300, "h2o:budget=0.5,window:budget=0.5,random:budget=0.5", log);
  for (const PointResult& result : results) {
    CAPTURE(result.spec.text());
    // Uniform attention recalls the mean of (k + 1) / (n + i), close to ln 2 / 2.
    CHECK(result.quality->recall_mean == Approx(0.346).margin(0.01));
  }
}

TEST_CASE("permuting the KV heads permutes the results") {
  const Qkv x = random_qkv(shape_of(80, 2, 2), 6);
  Qkv swapped = x;
  const auto swap_heads = [](std::vector<float>& values) {
    const std::size_t half = values.size() / 4;  // two layers of two heads
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(2 * layer * half);
      std::swap_ranges(begin, begin + static_cast<std::ptrdiff_t>(half), begin + static_cast<std::ptrdiff_t>(half));
    }
  };
  swap_heads(swapped.q);
  swap_heads(swapped.k);
  swap_heads(swapped.v);
  Log a;
  Log b;
  const std::string policies = "h2o:budget=12,scissorhands:budget=20,keyformer:budget=12:noise=none";
  run(x, 40, policies, a);
  run(swapped, 40, policies, b);
  REQUIRE(a.events.size() == b.events.size());
  for (std::size_t i = 0; i < a.events.size(); i += 2) {
    CHECK(a.events[i].kept == b.events[i + 1].kept);
    CHECK(a.events[i + 1].kept == b.events[i].kept);
  }
}
