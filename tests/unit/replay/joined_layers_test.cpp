// Policies with one set for all layers: keyformer:score=shared.
#include <algorithm>
#include <map>
#include <tuple>

#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/replay/replay.hpp"
#include "tests/catch.hpp"
#include "tests/support/qkv_trace.hpp"
#include "tests/support/run_program.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kPrompt = 40, kSteps = 20, kLayers = 3, kHeads = 4, kKvHeads = 2;

struct Seen final : ReplayObserver {
  bool wants_kept(StepId, StepId) override { return true; }
  void kept(const KeptSet& s) override {
    sets[{s.point, s.step.value, s.layer.value, s.head}] = {s.positions.begin(), s.positions.end()};
  }
  void quality(const QualityValue& v) override {
    recalls[{v.point, v.step.value, v.layer.value, v.query_head}] = v.quality.recall;
    errors[{v.point, v.step.value, v.layer.value, v.query_head}] = v.quality.output_error;
  }
  void progress(std::uint64_t done, std::uint64_t total) override {
    shares.push_back(static_cast<double>(done) / static_cast<double>(total));
  }
  std::vector<double> shares;  // of the replay, that were told to be done
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, std::vector<TokenPos>> sets;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>, double> recalls, errors;
};

std::vector<PointResult> run(const Qkv& x, const std::string& policies, Seen& seen, unsigned threads = 2) {
  const TemporaryFolder folder;
  TraceOptions options;
  options.prompt = kPrompt;
  std::uint32_t heads = 0;  // of the layers before
  options.edit_layer = [&](TraceLayer& layer) {
    for (std::uint32_t h = 0; h < layer.query_heads; ++h) {
      layer.attention_sinks.push_back(static_cast<float>(heads++ * 5 % 12) - 4);
    }
  };
  write_trace(folder.path() / "x.kvt", x, options);
  ThreadPool pool(threads);
  ReplayOptions replay_options;
  replay_options.observer = &seen;
  return replay(TraceReader::open(folder.path() / "x.kvt"), parse_policies(policies), replay_options, pool);
}

Qkv model() {
  Qkv shape;
  shape.layers = kLayers;
  shape.heads = kHeads;
  shape.kv_heads = kKvHeads;
  shape.tokens = kPrompt + kSteps;
  return random_qkv(shape, 11, 1.5);
}

}  // namespace

TEST_CASE("a score shared over layers is the layer's score of a model whose heads all lie in one layer") {
  const Qkv x = model();
  Qkv side_by_side = x;  // tensors are [layers, heads, tokens, d]
  side_by_side.layers = 1;
  side_by_side.heads *= kLayers;
  side_by_side.kv_heads *= kLayers;
  for (const std::string rest : {":budget=12:noise=none", ":budget=0.4:group=none", ":budget=9:noise=query"}) {
    INFO(rest);
    Seen shared, joined;
    const auto a = run(x, "keyformer:score=shared" + rest, shared);
    const auto b = run(side_by_side, "keyformer:score=layer" + rest, joined);
    const std::uint32_t storage = rest.find("group=none") == std::string::npos ? kKvHeads : kHeads;
    CHECK(shared.sets.size() == (kSteps + 1) * kLayers * storage);
    for (const auto& [at, set] : shared.sets) {
      const auto [point, step, layer, head] = at;
      CHECK(set == joined.sets.at({point, step, 0, layer * storage + head}));
      CHECK(set == shared.sets.at({point, step, 0, 0}));
    }
    for (const auto& [at, recall] : shared.recalls) {
      const auto [point, step, layer, head] = at;
      CHECK(recall == joined.recalls.at({point, step, 0, layer * kHeads + head}));
      CHECK(shared.errors.at(at) == joined.errors.at({point, step, 0, layer * kHeads + head}));
    }
    CHECK(a[0].quality->recall_mean == Approx(b[0].quality->recall_mean));
    CHECK(a[0].quality->recall_worst1 == b[0].quality->recall_worst1);
    CHECK(a[0].quality->layers.size() == kLayers);
    const Residency of_layers = a[0].residency[0].expand(), of_one = b[0].residency[0].expand();
    CHECK(of_layers.layers == kLayers);
    CHECK(of_layers.storage_heads == storage);
    for (std::uint32_t step = 0; step <= kSteps; ++step) {
      LayerCounts sum;
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        const LayerCounts& c = of_layers.at(step, layer);
        sum.attended += c.attended;
        sum.written += c.written;
        sum.moved += c.moved;
        sum.resident += c.resident;
        sum.allocated += c.allocated;
        sum.allocated_paged += c.allocated_paged;
        sum.state_read += c.state_read;
        sum.state_written += c.state_written;
      }
      sum.policy_flops = of_one.at(step, 0).policy_flops;
      CHECK(sum == of_one.at(step, 0));
    }
  }
}

TEST_CASE("points with a set for each layer are what they are beside a point with one set for all, in any order") {
  const Qkv x = model();
  const std::string shared = "keyformer:budget=12:score=shared:noise=none";
  Seen alone, mixed;
  const auto a = run(x, "h2o:budget=12,window:budget=0.3", alone);
  const auto b = run(x, "h2o:budget=12," + shared + ",window:budget=0.3", mixed, 3);
  REQUIRE(b.size() == 3);
  CHECK(b[1].spec.text() == parse_policies(shared).front().text());
  for (const auto& [at, set] : alone.sets) {
    const auto [point, step, layer, head] = at;
    CHECK(set == mixed.sets.at({2 * point, step, layer, head}));
  }
  CHECK(b[2].quality->recall_mean == a[1].quality->recall_mean);
  CHECK(mixed.sets.size() == alone.sets.size() / 2 * 3);
  for (const Seen* seen : {&alone, &mixed}) {
    CHECK(std::ranges::is_sorted(seen->shares));
    CHECK(seen->shares.back() == 1);
    CHECK(std::ranges::count(seen->shares, 1.0) == 1);
  }
}

TEST_CASE("a score shared over layers is refused with budgets of layers, and by the engines") {
  CHECK_THROWS_AS(parse_policies("keyformer:budget=8:score=shared:layers=pyramid"), Error);
  CHECK_THROWS_AS(check_runnable(parse_policies("keyformer:budget=8:score=shared").front()), Error);
  CHECK_NOTHROW(check_runnable(parse_policies("keyformer:budget=8:score=layer").front()));
}
