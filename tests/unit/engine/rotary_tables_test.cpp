// Rotary rules with a second table of frequencies for long prompts, in models whose layers have rules of their own.
#include "kernels/cpu/fast_ops.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "tests/catch.hpp"
#include "tests/golden/model_support.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

const std::vector<std::int64_t> kIds = {5, 17, 9, 33, 8, 21, 40, 3};

std::vector<float> last_logits(const Model& model, bool fast) {
  std::unique_ptr<Ops> ops = fast ? make_fast_ops(1) : std::make_unique<ReferenceOps>();
  CpuBackend backend(model, std::move(ops), {full_policy(), 0, DType::kF32});
  std::vector<float> logits(model.config.shape.vocab);
  backend.prefill(0, kIds, 1, logits, {});
  return logits;
}

}  // namespace

TEST_CASE("each rotary rule says by itself which prompts take its second table") {
  ModelOptions options;
  options.rotary.resize(3);
  CHECK(use_long_rotary(options, std::vector<std::uint32_t>{1, 100}).empty());
  options.rotary[0].long_from = 4;
  options.rotary[2].long_from = 50;
  CHECK(use_long_rotary(options, std::vector<std::uint32_t>{4, 5, 51}) ==
        std::vector<std::uint8_t>{0, 1, 1, 0, 0, 0, 0, 0, 1});
}

TEST_CASE("a layer whose rotary rule has one table keeps it where another layer's rule takes its second") {
  Model model = load_model(std::filesystem::path(KVROOF_SOURCE_DIR) / "tests/golden/models/llama-gqa", DType::kF32);
  const std::vector<float> expected[] = {last_logits(model, false), last_logits(model, true)};
  ModelOptions& options = model.config.options;
  options.rotary.resize(2, options.rotary[0]);
  options.layers[1].rotary = 1;
  options.rotary[0].long_from = 4;
  options.rotary[0].long_inverse_frequencies.swap(options.rotary[0].inverse_frequencies);
  options.rotary[0].inverse_frequencies.assign(options.rotary[0].dims / 2, 7);
  for (const bool fast : {false, true}) CHECK(last_logits(model, fast) == expected[fast ? 1 : 0]);
}
