// streaming:positions=slot in the engine: a layer attends as if the tokens held were the whole text.
#include "kernels/cpu/fast_ops.hpp"
#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr std::uint32_t kPrompt = 30, kDecoded = 25;

Model load(const std::string& name) {
  return load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models" / name, DType::kF32);
}

std::vector<std::int64_t> some_ids(std::uint32_t count) {
  std::vector<std::int64_t> ids;
  for (std::uint32_t i = 0; i < count; ++i) ids.push_back((31 * i * i + 7 * i + 3) % 200);
  return ids;
}

// Logits after the last of the ids, of which `decoded` are fed one by one.
std::vector<float> last_logits(const Model& model, bool fast, const std::string& policy,
                               std::span<const std::int64_t> ids, std::uint32_t decoded) {
  std::unique_ptr<Ops> ops = fast ? make_fast_ops(2) : std::make_unique<ReferenceOps>();
  CpuBackend backend(model, std::move(ops), {parse_policies(policy).front(), 0, DType::kF32});
  std::vector<float> logits(model.config.shape.vocab);
  backend.prefill(0, ids.first(ids.size() - decoded), decoded, logits, {});
  for (const std::int64_t id : ids.last(decoded)) {
    const DecodeEntry entry{0, id};
    backend.decode({&entry, 1}, logits);
  }
  return logits;
}

}  // namespace

TEST_CASE("with one layer, slot positions give the logits of a text of the sinks, the recent tokens and nothing else") {
  const auto ids = some_ids(kPrompt + kDecoded);
  for (const char* name : {"llama-gqa", "gptj", "bloom"}) {  // half-split and adjacent pairs, and ALiBi
    Model model = load(name);
    model.config.shape.layers = 1;  // k and v depend on their tokens alone
    for (const bool fast : {false, true}) {
      INFO(name << " fast " << fast);
      const auto slot = last_logits(model, fast, "streaming:budget=12:sinks=3:positions=slot", ids, kDecoded);
      // Twelve tokens are held when the last query comes.
      std::vector<std::int64_t> held(ids.begin(), ids.begin() + 3);
      held.insert(held.end(), ids.end() - 10, ids.end());
      const auto whole = last_logits(model, fast, "full", held, 0);
      CHECK(relative_error(slot, whole) <= 2e-5);
      const auto original = last_logits(model, fast, "streaming:budget=12:sinks=3", ids, kDecoded);
      CHECK(relative_error(original, whole) > 1e-3);
    }
  }
}

TEST_CASE("without sinks there is no gap, and slot positions are the original ones bit for bit") {
  const auto ids = some_ids(kPrompt + kDecoded);
  const Model model = load("llama-gqa");
  CHECK(last_logits(model, false, "streaming:budget=12:sinks=0:positions=slot", ids, kDecoded) ==
        last_logits(model, false, "window:budget=12", ids, kDecoded));
}
