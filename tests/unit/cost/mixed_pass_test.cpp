// Passes that compute prompts, or parts of them, beside tokens of answers.
#include <algorithm>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

CostModel cost_of(const std::string& name, std::uint32_t drafted, const std::string& engine = "vllm") {
  const ModelShape shape = find_model_shape(name, kCatalog);
  Deployment deployment = TrafficTypes{DType::kBF16, DType::kBF16};
  deployment.tensor_parallel = 8;
  if (drafted > 0) deployment.speculation = Speculation{drafted, 0.8, mtp_draft(shape)};
  return CostModel(shape, deployment, find_device("h200", kCatalog), find_engine_profile(engine, kCatalog));
}

}  // namespace

TEST_CASE("a pass of answers and prompts takes longer than either alone, and no longer than both one after another") {
  for (const char* name : {"llama-3-8b", "qwen3-235b-a22b", "deepseek-v3.2", "qwen3-next-80b-a3b", "gemma-3-27b"}) {
    for (const std::uint32_t drafted : {0U, 2U}) {
      const CostModel cost = cost_of(name, drafted);
      const ResidencySummary answers = full_attention_summary(cost.shape(), 4096, 64);
      for (const std::uint32_t prompt : {64U, 512U, 8192U}) {
        INFO(name << ", " << drafted << " drafted, " << prompt << " tokens of prompt");
        const ResidencySummary prompts = full_attention_summary(cost.shape(), prompt, 1);
        const double step = cost.step(answers, 16).value, prefill = cost.prefill(prompts, 1).value;
        const Estimate mixed = cost.mixed(answers, Pass{16}, prompts, Pass{1});
        CHECK(mixed.value > std::max(step, 0.999 * prefill));
        CHECK(mixed.value < 1.001 * (step + prefill));
        CHECK(mixed.limit > 0);
        CHECK(mixed.limit < mixed.value);
      }
    }
  }
}

TEST_CASE("weights that a pass reads for few tokens of answers and of prompts are read once") {
  const CostModel cost = cost_of("llama-3.1-70b", 0);
  const ResidencySummary answers = full_attention_summary(cost.shape(), 128, 16);
  const ResidencySummary prompts = full_attention_summary(cost.shape(), 32, 1);
  const double alone = cost.step(answers, 4).value;
  CHECK(cost.mixed(answers, Pass{4}, prompts, Pass{1}).value < 1.1 * alone);
  CHECK(cost.prefill(prompts, 1).value > 0.8 * alone);
}

}  // namespace kvroof
