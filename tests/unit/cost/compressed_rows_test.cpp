// What DeepSeek-V4 costs: memory of a batch, and times that no datasheet forbids.
#include "sim/model/compressed_rows.hpp"

#include <filesystem>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelShape flash() { return find_model_shape("deepseek-v4-flash", kCatalog); }

CostModel cost_of(const ModelShape& model, const char* device, std::uint32_t devices, const char* engine = "sglang",
                  const char* weights = "fp8-mxfp4") {
  Deployment deployment(TrafficTypes{}, *parse_weight_format(weights));
  deployment.tensor_parallel = devices;
  return {model, deployment, find_device(device, kCatalog), find_engine_profile(engine, kCatalog)};
}

double attention_seconds(const CostModel& cost, std::uint32_t prompt, u64 batch) {
  return cost.predict(full_attention_summary(cost.shape(), prompt, 2), batch)
      .terms[static_cast<std::size_t>(CostTerm::kAttention)]
      .value;
}

}  // namespace

TEST_CASE("weights of DeepSeek-V4-Flash are those of experts in 4.25 bits and of all else in 8") {
  const ModelShape s = flash();
  const double experts = 43.0 * 256 * 3 * 4096 * 2048, ends = 129280.0 * 4096 * 2;
  const auto exact = static_cast<double>(exact_parameters(s));
  const double layers = static_cast<double>(parameter_count(s)) - experts - ends - exact;
  CHECK(static_cast<double>(weight_bytes(s, *parse_weight_format("fp8-mxfp4")).value) ==
        Approx(experts * 4.25 / 8 + layers + 2 * ends + 4 * exact));
}

TEST_CASE("memory of a batch holds windows, compressed rows, keys, and what makes them") {
  const ModelShape s = flash();
  const MemoryLedger m = cost_of(s, "h200", 4, "sglang").memory().ledger(full_attention_summary(s, 8000, 192), 5);
  CHECK(m.kv_allocated.value == 5 * kv_bytes(s, DType::kBF16, 8192).value);
  CHECK(m.states.value == 5 * state_bytes(s, DType::kBF16).value);  // whole on each device, as the one KV head is
}

TEST_CASE("a step of DeepSeek-V4 is not shorter than reading what it reads") {
  for (const char* device : {"h200", "b200"}) {
    for (const char* engine : {"vllm", "sglang", "tensorrt-llm"}) {
      for (const u64 batch : {u64{1}, u64{64}, u64{512}}) {
        INFO(device << " " << engine << " " << batch);
        const ModelShape s = flash();
        const CostModel cost = cost_of(s, device, 4, engine);
        const ResidencySummary r = full_attention_summary(s, 16384, 2);
        const Prediction p = cost.predict(r, batch);
        const double cache = static_cast<double>(p.traffic.bytes[Cause::kKvRead]);
        CHECK(p.step.value > cache / find_device(device, kCatalog).bandwidth().value);
        CHECK(p.step.value > p.step.limit);
        CHECK(p.step.limit > 0);
      }
    }
  }
}

TEST_CASE("choosing takes its time where more compressed rows compete than a query reads") {
  const ModelShape s = flash();
  const CostModel cost = cost_of(s, "b200", 4);
  EngineProfile without = find_engine_profile("sglang", kCatalog);
  const double each = without.choose_rows_us * 1e-6;
  REQUIRE(each > 0);
  without.choose_rows_us = 0;
  Deployment deployment(TrafficTypes{}, *parse_weight_format("fp8-mxfp4"));
  deployment.tensor_parallel = 4;
  const CostModel plain(s, deployment, find_device("b200", kCatalog), without);
  // A query reads 512 rows of 4 tokens.
  CHECK(attention_seconds(cost, 2000, 8) == Approx(attention_seconds(plain, 2000, 8)));
  CHECK(attention_seconds(cost, 2100, 8) == Approx(attention_seconds(plain, 2100, 8) + 21 * each));
}

TEST_CASE("experts in 4 bits are unpacked on boards that multiply eight bits and no fewer") {
  // One token reads six experts a layer in either; H200 has FP8 products, and B200 FP4 ones too.
  const auto linear = [](const char* device, const char* weights) {
    const CostModel cost = cost_of(flash(), device, 8, "vllm", weights);
    return cost.predict(full_attention_summary(cost.shape(), 4096, 2), 64)
        .terms[static_cast<std::size_t>(CostTerm::kLinear)]
        .value;
  };
  CHECK(linear("b200", "fp8-mxfp4") < linear("b200", "fp8"));
  const double narrow = linear("h200", "fp8-mxfp4") / linear("h200", "fp8");
  CHECK(narrow > linear("b200", "fp8-mxfp4") / linear("b200", "fp8"));
}

TEST_CASE("the layer that drafts for DeepSeek-V4 has a window alone") {
  const ModelShape s = flash();
  Deployment deployment(TrafficTypes{}, *parse_weight_format("fp8-mxfp4"));
  deployment.tensor_parallel = 8;
  deployment.speculation = Speculation{1, 0.8, mtp_draft(s)};
  const CostModel cost(s, deployment, find_device("h200", kCatalog), find_engine_profile("sglang", kCatalog));
  CHECK(cost.memory().draft_cache_bytes(1000) == Approx(128.0 * 1024));
  CHECK(cost.memory().draft_cache_bytes(1000) == cost.memory().draft_cache_bytes(100000));
  const ResidencySummary r = full_attention_summary(s, 4096, 128);
  CHECK(cost.predict(r, 8).step.value > cost_of(s, "h200", 8).predict(r, 8).step.value);
}

}  // namespace kvroof
