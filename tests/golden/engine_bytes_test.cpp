// The engine's byte counters against the simulator's traffic of the same run, exactly; and evictions against a replay.
#include "tests/golden/engine_bytes.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

const fs::path kDemo = fs::path(KVROOF_SOURCE_DIR) / "models/demo";
const fs::path kGoldens = fs::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

// Three prompts of different lengths out of an unseen document.
Prompts demo_prompts() {
  const auto ids = integers(open_tensors(kDemo / "reference.safetensors"), "sqlite-rbu.ids");
  return {
      {ids.begin(), ids.begin() + 40}, {ids.begin() + 100, ids.begin() + 133}, {ids.begin() + 200, ids.begin() + 221}};
}

// Parameters that matter to bytes or to which rows are seen.
const std::vector<std::string> kVariants = {
    "full",
    "window:budget=0.5",
    "streaming:budget=10",
    "keydiff:budget=0.5",
    "lagkv:budget=0.5:lag=4",
    "expected-attention:budget=0.4:group=none",
    "h2o:budget=0.5",
    "h2o:budget=0.2",
    "h2o:budget=0.5@current",
    "keyformer:budget=0.5",
    "keyformer:budget=0.5:noise=query",
    "random:budget=0.4",
    "scissorhands:budget=0.5",
    "scissorhands:budget=0.5:reading=B:threshold=length",
    "scissorhands:budget=12:prompt=stream",
    "h2o:budget=39",  // more than two of the prompts have
    "h2o:budget=0.5:when=4",
    "h2o:budget=0.5:layers=pyramid",
    "scissorhands:budget=0.5:layers=persistence/0.9/0.3:prompt=stream",
    "keyformer:budget=0.5:score=layer:damping=0.9:draw=gaussian",
    "streaming:budget=12:positions=slot",
    "d2o:budget=0.3",
    "d2o:budget=12:threshold=0:group=none:when=4",
    "tova:budget=0.5",
    "snapkv:budget=0.5:window=8",
    "snapkv:budget=0.5:window=8:group=none",
    "pyramidkv:budget=0.5:window=4",
    "adakv:budget=0.5:window=4",
    "adakv:budget=0.5:window=4:group=none:layers=pyramid",
    "observed-attention:budget=0.5",
    "threshold:threshold=0.6:recent=5",
    "threshold:threshold=0.6:recent=5:decide=always:when=4:group=none",
    "fastgen:recovery=0.7:kinds=none",
    "simlayerkv:threshold=0.1:recent=8:last=2",
    "h2o:budget=18:recent=4:page=16",
    "kv-compress:budget=0.4:window=4:page=4",
    "duo:retrieval=0.5:sinks=2:recent=8",
    "a2sf:budget=0.5:forgetting=0.7",
    "chunkkv:budget=0.5:window=4:chunk=4",
    "criticalkv:budget=0.5:window=4",
    "r-kv:budget=0.5:window=4",
};

// These, and every policy of the table that none of them names: what is added to it is held to its bytes at once.
std::vector<std::string> all_policies() {
  std::vector<std::string> all = kVariants;
  for (const PolicyInfo& info : policy_table()) {
    const auto names = [&](const std::string& text) { return parse_policies(text).front().name == info.name; };
    if (std::ranges::any_of(kVariants, names)) continue;
    const std::string text = std::string(info.name) + (info.takes_budget ? ":budget=0.5" : "");
    if (!info.traits(parse_policies(text).front()).bound) all.push_back(text);
  }
  return all;
}

// Those of them that evict.
std::vector<std::string> evicting_policies() {
  std::vector<std::string> all = all_policies();
  std::erase_if(all, [](const std::string& text) {
    const PolicySpec spec = parse_policies(text).front();
    return spec.name == "full" || policy_info(spec.name).traits(spec).selects;
  });
  return all;
}

// As the reference, but attention walks the first row of its first call a second time.
class WalksTwice : public ReferenceOps {
 public:
  void attend(std::span<const AttendCall> calls, const AttentionRule& rule) override {
    ReferenceOps::attend(calls, rule);
    AttendCall again = calls[0];
    std::vector<float> unused(again.out.size());
    again.out = unused;
    again.keys.count = 1;
    again.values.count = 1;
    const TokenPos first = again.policy->positions(again.head)[0];
    ByteCounters before = counters_;
    walk_rows(again, {&first, 1}, rule);
    // Only the rows of the cache are walked again, not the query and the output.
    counters_.bytes[static_cast<std::size_t>(Cause::kActivations)] = before[Cause::kActivations];
  }
};

}  // namespace

TEST_CASE("bytes counted by the engine equal the simulator's for every policy, step and cause") {
  const Model model = load_model(kDemo, DType::kBF16);
  for (const std::string& policy : all_policies()) {
    INFO(policy);
    const TraceFolder folder;
    const PolicySpec spec = parse_policies(policy).front();
    const TraceReader trace =
        record(folder.path(), model, spec, DType::kF32, demo_prompts(), std::make_unique<ReferenceOps>());
    check_equal(trace, simulate(trace, model, spec, DType::kF32));
  }
}

// Families that differ in what a step must move: biases, norms, positions, plain MLPs, grouped and single KV heads,
// parallel residuals, norms of embeddings, narrower embeddings.
const std::vector<std::string> kFamilies = {
    "llama-gqa", "llama-bias",          "gpt2",   "cerebras-gpt", "gptj",
    "gpt-neox",  "gpt-neox-sequential", "falcon", "falcon-new",  "falcon-alibi", "mpt",
    "mpt-clip",  "bloom",               "opt",    "opt-350m"};

TEST_CASE("bytes of every family equal the simulator's, and a replay makes the decisions of its recorded run") {
  for (const std::string& name : kFamilies) {
    const Model model = load_model(kGoldens / name, DType::kF32);
    const auto ids = integers(open_tensors(kGoldens / name / "golden.safetensors"), "ids_37");
    for (const char* policy : {"h2o:budget=0.5:group=none", "window:budget=0.5", "keyformer:budget=0.4", "full"}) {
      INFO(name << " " << policy);
      const TraceFolder folder;
      const PolicySpec spec = parse_policies(policy).front();
      const TraceReader trace =
          record(folder.path(), model, spec, DType::kBF16, {ids}, std::make_unique<ReferenceOps>());
      const Expected expected = simulate(trace, model, spec, DType::kBF16);
      check_equal(trace, expected);
      CHECK(expected.reproduction.differences == 0);
      CHECK((expected.reproduction.decisions > 0) == (spec.name != "full"));
    }
  }
}

TEST_CASE("bytes are equal when a prompt of more than one block of logits records its log-probabilities") {
  const Model model = load_model(kDemo, DType::kBF16);
  const std::uint32_t block = logit_block(model.config.shape.vocab);
  auto ids = integers(open_tensors(kDemo / "reference.safetensors"), "sqlite-rbu.ids");
  ids.resize(block + 10);
  const auto logprobs = floats(open_tensors(kDemo / "reference.safetensors"), "sqlite-rbu.logprob");
  const TraceFolder folder;
  const PolicySpec spec = parse_policies("full").front();
  const TraceReader trace = record(folder.path(), model, spec, DType::kF32, {ids}, make_fast_ops(2), {"fast", true});
  // The fast back end walks the prompt's k and v once for a block of queries.
  check_equal(trace, simulate(trace, model, spec, DType::kF32, {block, make_fast_ops(1)->prefill_block()}));
  const std::vector<float> recorded = trace.logprobs(0);
  double largest = 0;
  for (std::size_t i = 1; i < ids.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(recorded[i]) - logprobs[i - 1]));
  }
  CHECK(largest <= 0.1);  // bf16 weights against float32
}

TEST_CASE("a kernel that walks one row twice breaks the equality of bytes") {
  const Model model = load_model(kDemo, DType::kF32);
  const TraceFolder folder;
  const PolicySpec spec = parse_policies("h2o:budget=0.5").front();
  const TraceReader trace =
      record(folder.path(), model, spec, DType::kF32, demo_prompts(), std::make_unique<WalksTwice>());
  const Expected expected = simulate(trace, model, spec, DType::kF32);
  const std::vector<StepRecord> steps = trace.steps();
  REQUIRE(steps.size() == expected.steps.size());
  const std::uint64_t row = 2 * 64 * sizeof(float);
  for (std::size_t i = 3; i < steps.size(); ++i) {
    CHECK(steps[i].bytes[Cause::kKvRead] == expected.steps[i][Cause::kKvRead] + row * model.config.shape.layers);
    CHECK(steps[i].bytes[Cause::kWeights] == expected.steps[i][Cause::kWeights]);
  }
}

TEST_CASE("a trace recorded under an evicting policy lists its evictions, and a replay makes every one of them") {
  const Model model = load_model(kDemo, DType::kF32);
  for (const std::string& policy : evicting_policies()) {
    INFO(policy);
    const TraceFolder folder;
    const PolicySpec spec = parse_policies(policy).front();
    const TraceReader trace =
        record(folder.path(), model, spec, DType::kF32, demo_prompts(), std::make_unique<ReferenceOps>());
    std::uint64_t evictions = 0;
    for (const TraceSequence& sequence : trace.manifest().sequences) {
      for (std::uint32_t layer = 0; layer < model.config.shape.layers; ++layer) {
        evictions += trace.evictions(sequence.id, LayerId(layer)).size();
      }
    }
    CHECK(evictions > 0);
    const Expected expected = simulate(trace, model, spec, DType::kF32);
    INFO(expected.reproduction.first_difference);
    CHECK(expected.reproduction.decisions > 0);
    CHECK(expected.reproduction.differences == 0);
  }
}

TEST_CASE("the fast back end evicts as a replay does, but for scores within rounding") {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    const Model model = load_model(kDemo, type);
    for (const std::string& policy : evicting_policies()) {
      INFO(policy << " " << name_of(type));
      const TraceFolder folder;
      const PolicySpec spec = parse_policies(policy).front();
      const TraceReader trace =
          record(folder.path(), model, spec, type, demo_prompts(), make_fast_ops(2), {"fast"});
      const Reproduction reproduction = simulate(trace, model, spec, type).reproduction;
      CHECK(reproduction.decisions > 0);
      CHECK(reproduction.problem() == "");
    }
  }
}
