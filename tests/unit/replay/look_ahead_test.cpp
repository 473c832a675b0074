// The bound that knows the rest of a trace, through replay().
#include "sim/replay/look_ahead.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kPrompt = 40, kTokens = 100, kHeads = 4, kLayers = 2;

struct Seen final : ReplayObserver {
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& s) override {
    sets[{s.point, s.layer.value, s.head, s.step.value}] = {s.positions.begin(), s.positions.end()};
  }
  void quality(const QualityValue& v) override {
    recalls[{v.point, v.layer.value, v.query_head, v.step.value}] = v.quality.recall;
  }
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::map<Key, std::set<TokenPos>> sets;
  std::map<Key, double> recalls;
};

std::vector<PointResult> replayed(const std::string& policies, std::uint32_t window, Seen& seen) {
  Qkv shape;
  shape.layers = kLayers;
  shape.heads = kHeads;
  shape.kv_heads = 2;
  shape.tokens = kTokens;
  TraceOptions options;
  options.prompt = kPrompt;
  options.edit_layer = [window](TraceLayer& layer) { layer.window = window; };
  const TemporaryFolder folder;
  write_trace(folder.path() / "x.kvt", random_qkv(shape, 23, 1.5), options);
  const TraceReader trace = TraceReader::open(folder.path() / "x.kvt");
  ThreadPool pool(2);
  ReplayOptions replay_options;
  replay_options.observer = &seen;
  return replay(trace, parse_policies(policies), replay_options, pool);
}

}  // namespace

TEST_CASE("oracle-causal in a replay: no token returns, k are held, and nothing that evicts for good recalls more") {
  const std::vector<std::string> others = {"h2o", "h2o:group=none", "keyformer", "tova", "a2sf", "window", "random"};
  std::string policies = "oracle:budget=10,oracle-causal:budget=10";
  for (const std::string& name : others) policies += "," + name + ":budget=10";
  for (const std::uint32_t window : {0U, 25U}) {
    INFO("window " << window);
    Seen seen;
    const auto results = replayed(policies, window, seen);
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      for (std::uint32_t head = 0; head < kHeads; ++head) {
        std::vector<double> sums(results.size());
        for (std::uint32_t step = 1; step <= kTokens - kPrompt; ++step) {
          const auto& now = seen.sets.at({1, layer, head, step});
          auto possible = seen.sets.at({1, layer, head, step - 1});
          possible.emplace(kPrompt + step - 1);
          CHECK(now.size() == 10);
          CHECK(std::ranges::includes(possible, now));
          const auto recall = [&](std::uint32_t point) { return seen.recalls.at({point, layer, head, step}); };
          CHECK(recall(1) <= recall(0) + 1e-6);
          for (std::uint32_t point = 0; point < results.size(); ++point) sums[point] += recall(point);
        }
        for (std::size_t point = 2; point < results.size(); ++point) CHECK(sums[1] >= sums[point] - 1e-4);
      }
    }
  }
}

TEST_CASE("oracle-causal has the counts of a cache of its budget for each query head, and no state") {
  Seen seen;
  const auto results = replayed("oracle-causal:budget=10,window:budget=10", 0, seen);
  const Residency bound = results[0].residency[0].expand();
  const Residency window = results[1].residency[0].expand();
  for (std::uint32_t step = 0; step <= bound.steps; ++step) {
    CHECK(bound.at(step, 0).resident == 2 * window.at(step, 0).resident);  // a set for each query head
    CHECK(bound.at(step, 0).state_read == 0);
  }
}
