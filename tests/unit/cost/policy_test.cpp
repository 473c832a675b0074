// What a policy adds to a step: its kernels, and their part of the width.
#include <filesystem>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

EngineProfile graphs() { return find_engine_profile("graphs", kCatalog); }

CostModel on(const char* device, const char* model, const EngineProfile& engine = graphs()) {
  return {find_model_shape(model, kCatalog), TrafficTypes{DType::kF16, DType::kF16}, find_device(device, kCatalog),
          engine};
}

// Half of 2048 tokens are kept.
ResidencySummary half_of(const CostModel& cost) {
  return summarise(synthetic::fraction({2048, 1}, 0.5, cost.shape().layers, cost.shape().kv_heads));
}

}  // namespace

TEST_CASE("probabilities that a policy needs are written by attention and read by the policy") {
  const CostModel cost = on("h100-sxm", "llama-3-8b");
  ResidencySummary r = half_of(cost);
  CHECK(cost.predict(r, 1).terms[3].value == 0);
  r.needs_probabilities = r.observes_steps = true;
  // 32 layers of 2 kernels, 3.6 us each; 1025 rows, 32 layers, 32 query heads, 4 B, twice.
  const double read = 1025.0 * 32 * 32 * 4 * 2 / (0.90 * 3350e9);
  CHECK(cost.predict(r, 1).terms[3].value == Approx(64 * 3.6e-6 + read));
  EngineProfile slower = graphs();
  slower.policy_share = 0.25;
  CHECK(on("h100-sxm", "llama-3-8b", slower).predict(r, 1).terms[3].value == Approx(64 * 3.6e-6 + 4 * read));
}

TEST_CASE("a step pays for probabilities where decoded rows are looked at, a prompt where all of its rows are") {
  const CostModel cost = on("h100-sxm", "llama-3-8b");
  const ResidencySummary silent = half_of(cost);
  ResidencySummary of_prompt = silent, of_steps = silent;
  of_prompt.needs_probabilities = true;
  of_steps.observes_steps = true;
  CHECK(cost.predict(of_prompt, 1).step.value == cost.predict(silent, 1).step.value);
  CHECK(cost.predict(of_steps, 1).step.value > cost.predict(silent, 1).step.value);
  CHECK(cost.prefill(of_prompt, 1).value > cost.prefill(silent, 1).value);
  CHECK(cost.prefill(of_steps, 1).value == cost.prefill(silent, 1).value);
}

TEST_CASE("the width of a policy's kernels is told apart, in a step, in its rate and in many") {
  const CostModel cost = on("h100-sxm", "llama-3-8b");
  ResidencySummary r = half_of(cost);
  CHECK(cost.predict(r, 1).step.unmeasured == 0);
  r.needs_probabilities = r.observes_steps = true;
  const Prediction p = cost.predict(r, 1);
  const double starts = 64 * 3.6e-6, reads = p.terms[3].value - starts;
  const double width = p.step.high80 - p.step.value;
  CHECK(p.step.unmeasured * width * width == Approx(0.25 * (starts * starts + reads * reads)));
  CHECK(p.tokens_per_s.unmeasured == p.step.unmeasured);
  CHECK(scaled(p.step, 7).unmeasured == p.step.unmeasured);
}

TEST_CASE("rows of each query head are spread over devices until each has one head, whatever KV heads there are") {
  const auto over = [](std::uint32_t devices) {
    Deployment deployment{TrafficTypes{}};
    deployment.tensor_parallel = devices;
    return CostModel(find_model_shape("llama-3-8b", kCatalog), deployment, find_device("h100-sxm", kCatalog),
                     find_engine_profile("graphs", kCatalog));
  };
  const ModelShape shape = over(1).shape();
  const ResidencySummary apart = summarise(synthetic::fraction({2048, 1}, 0.5, shape.layers, shape.heads));
  const auto kv = [&](std::uint32_t devices) { return over(devices).memory().ledger(apart, 8).kv_allocated.value; };
  const auto reading = [&](std::uint32_t devices) { return over(devices).predict(apart, 256).terms[1].value; };
  CHECK(kv(16) * 16 == kv(1));
  CHECK(kv(32) * 32 == kv(1));
  CHECK(reading(16) < 0.7 * reading(8));
}

TEST_CASE("what a policy computes of a prompt takes its time, as in a step") {
  const CostModel cost = on("h100-sxm", "llama-3-8b");
  ResidencySummary r = half_of(cost);
  const Estimate silent = cost.prefill(r, 1);
  r.prefill.policy_flops.noise = 4e12;  // beside which the rows that are packed are few
  const Estimate scored = cost.prefill(r, 1);
  const double fp32 = find_device("h100-sxm", kCatalog).value(DeviceField::kPeakFp32Tflops) * 1e12;
  CHECK(scored.value - silent.value > 0.9 * 4e12 / fp32);
  CHECK(scored.value - silent.value < 2 * 4e12 / fp32);
  CHECK(scored.unmeasured > silent.unmeasured);
}

TEST_CASE("a prompt that is evicted from in pages takes no more memory than one that stays whole") {
  const CostModel paged(find_model_shape("llama-3-8b", kCatalog), Deployment(TrafficTypes{}),
                        find_device("h100-sxm", kCatalog), find_engine_profile("vllm", kCatalog));
  const MemoryLedger half = paged.memory().ledger(half_of(paged), 1);
  const MemoryLedger whole = paged.memory().ledger(full_attention_summary(paged.shape(), 2048, 1), 1);
  CHECK(half.prefill_transient.value == 1024ULL * 131072);  // beside the other half, which stays
  CHECK(half.total() <= whole.total());
}

}  // namespace kvroof
