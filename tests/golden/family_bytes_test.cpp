// Every family: the engine's byte counters against the simulator's traffic, and its evictions against a replay.
#include "tests/golden/engine_bytes.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

const fs::path kGoldens = fs::path(KVROOF_SOURCE_DIR) / "tests/golden/models";

std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens)) {
    if (fs::exists(entry.path() / "golden.safetensors")) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Three prompts, the longest longer than any window of the folders.
Prompts prompts_of(const std::string& name) {
  const SafetensorsFile golden = open_tensors(kGoldens / name / "golden.safetensors");
  const auto ids = integers(golden, "ids_37");
  const auto batch = integers(golden, "ids_b");
  return {ids, {batch.begin(), batch.begin() + 20}, {batch.begin() + 20, batch.begin() + 27}};
}

// The recording, its step bytes and its decisions, all as the simulator says.
void check_family(const std::string& name, const Model& model, const std::string& policy, DType kv, bool fast) {
  INFO(name << " " << policy << (fast ? " fast" : " reference"));
  const TraceFolder folder;
  const PolicySpec spec = parse_policies(policy).front();
  std::unique_ptr<Ops> ops = fast ? make_fast_ops(2) : std::make_unique<ReferenceOps>();
  const std::uint32_t queries = ops->prefill_block();
  const TraceReader trace = record(folder.path(), model, spec, kv, prompts_of(name), std::move(ops));
  const Expected expected = simulate(trace, model, spec, kv, {0, queries});
  check_equal(trace, expected);
  INFO(expected.reproduction.first_difference);
  if (fast) return;  // its decisions may differ where rounding does
  CHECK(expected.reproduction.differences == 0);
  if (spec.name == "full") CHECK(expected.reproduction.decisions == 0);
  // Where every layer has a window below the budget, there is nothing left to decide.
  const bool windowed = !model.config.shape.layer_windows.empty();
  if (spec.name != "full" && !windowed) CHECK(expected.reproduction.decisions > 0);
}

}  // namespace

TEST_CASE("bytes and evictions of every family equal the simulator's, at every step") {
  for (const std::string& name : models()) {
    const Model model = load_model(kGoldens / name, DType::kF32);
    for (const char* policy : {"full", "h2o:budget=0.5", "keyformer:budget=6", "scissorhands:budget=12:prompt=stream",
                               "h2o:budget=0.4:group=none", "expected-attention:budget=0.4",
                               "cur:budget=0.5:group=none"}) {
      check_family(name, model, policy, DType::kF32, false);
    }
    for (const char* policy : {"full", "streaming:budget=9"}) check_family(name, model, policy, DType::kBF16, true);
  }
}
