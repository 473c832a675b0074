// Quantised caches: the engine's bytes against the simulator's, and a replay of a run at full precision against a run
// on the quantised cache.
#include <algorithm>
#include <map>
#include <set>

#include "tests/golden/engine_bytes.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

const fs::path kDemo = fs::path(KVROOF_SOURCE_DIR) / "models/demo";
const fs::path kGoldens = fs::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

Prompts demo_prompts(std::size_t tokens) {
  auto ids = integers(open_tensors(kDemo / "reference.safetensors"), "sqlite-rbu.ids");
  ids.resize(tokens);
  return {std::move(ids)};
}

using Evictions = std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<std::uint32_t>>;  // by layer, head

Evictions evictions_of(const TraceReader& trace, std::uint32_t layers) {
  Evictions all;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    for (const EvictionRecord& e : trace.evictions(0, LayerId(layer))) all[{layer, e.head}].insert(e.position);
  }
  return all;
}

// What the replay of a trace under a policy with a cache of some type no longer holds at the end.
class Gone final : public ReplayObserver {
 public:
  explicit Gone(std::uint32_t tokens) : tokens_(tokens) {}
  bool wants_kept(StepId step, StepId last) override { return step == last; }
  void kept(const KeptSet& set) override {
    auto& gone = evictions[{set.layer.value, set.head}];
    for (std::uint32_t t = 0; t < tokens_; ++t) gone.insert(t);
    for (const TokenPos held : set.positions) gone.erase(held.value);
  }
  Evictions evictions;

 private:
  std::uint32_t tokens_;
};

}  // namespace

TEST_CASE("bytes of a quantised cache counted by the engine equal the simulator's, step by step") {
  const Model model = load_model(kDemo, DType::kBF16);
  for (const auto kind : {KvType::kInt8, KvType::kInt4, KvType::kInt4G64}) {
    for (const char* policy :
         {"full", "h2o:budget=0.5", "keydiff:budget=0.5", "adakv:budget=0.5:window=4:group=none", "h2o-masked",
          "scissorhands-refcompat:start=5:history=3:recent=2"}) {
      INFO(name_of(kind) << " " << policy);
      const TraceFolder folder;
      const PolicySpec spec = parse_policies(policy).front();
      const TraceReader trace =
          record(folder.path(), model, spec, kind, demo_prompts(40), std::make_unique<ReferenceOps>());
      const Expected expected = simulate(trace, model, spec, kind);
      check_equal(trace, expected);
      CHECK(expected.reproduction.differences == 0);  // the trace holds k and v as the cache gives them back
    }
  }
}

// Policies that do not look at logits hold the same tokens in both, whatever rounding does. `random` leaves holes.
TEST_CASE("bytes of a cache with a residual window equal the simulator's where tokens leave it, groups and holes") {
  const Model model = load_model(kGoldens / "llama-gqa", DType::kF32);
  const auto few = integers(open_tensors(kGoldens / "llama-gqa/golden.safetensors"), "ids_37");
  for (const std::size_t prompt : {1U, 37U, 130U, 250U}) {
    std::vector<std::int64_t> ids;
    while (ids.size() < prompt) ids.push_back(few[ids.size() % few.size()]);
    for (const char* policy :
         {"full", "window:budget=140", "random:budget=60", "streaming:budget=20", "h2o-masked:heavy=0:recent=9"}) {
      INFO(prompt << " " << policy);
      const TraceFolder folder;
      const PolicySpec spec = parse_policies(policy).front();
      Recording how;
      how.new_tokens = prompt == 1 ? 260 : 12;
      const TraceReader trace =
          record(folder.path(), model, spec, KvType::kKivi2, {ids}, std::make_unique<ReferenceOps>(), how);
      check_equal(trace, simulate(trace, model, spec, KvType::kKivi2));
    }
  }
}

TEST_CASE("a replay of a run at full precision keeps what a run on the quantised cache keeps, but for close calls") {
  const Model model = load_model(kDemo, DType::kF32);
  const std::uint32_t layers = model.config.shape.layers;
  const auto evicted = [&](const char* policy, KvType kv, bool replayed) {
    const TraceFolder folder;
    PolicySpec spec = parse_policies(policy).front();
    const TraceReader trace = record(folder.path(), model, replayed ? parse_policies("full").front() : spec,
                                     replayed ? KvType(KvType::kF32) : kv, demo_prompts(160),
                                     std::make_unique<ReferenceOps>());
    if (!replayed) return evictions_of(trace, layers);
    spec.kv = kv;
    Gone gone(trace.manifest().sequences[0].tokens);
    ThreadPool pool(1);
    ReplayOptions options;
    options.observer = &gone;
    replay(trace, std::span(&spec, 1), options, pool);
    return gone.evictions;
  };
  CHECK(evicted("window:budget=100", KvType::kKivi4, true) == evicted("window:budget=100", KvType::kKivi4, false));
  const Evictions open = evicted("h2o:budget=100", KvType::kInt8, true);
  const Evictions engine = evicted("h2o:budget=100", KvType::kInt8, false);
  std::size_t same = 0, all = 0;
  REQUIRE(open.size() == engine.size());
  for (const auto& [head, gone] : open) {
    all += gone.size();
    for (const std::uint32_t t : gone) same += engine.at(head).count(t);
  }
  INFO(same << " of " << all);
  CHECK(static_cast<double>(same) > 0.9 * static_cast<double>(all));
}
