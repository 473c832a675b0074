// What models need whose layers of attention are not all alike.
#include "sim/cost/cost.hpp"
#include "sim/cost/speculation.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelShape model(const std::string& name) { return find_model_shape(name, kCatalog); }

CostModel cost_of(const std::string& name, std::uint32_t tensor_parallel) {
  Deployment deployment = TrafficTypes{DType::kBF16, DType::kBF16};
  deployment.tensor_parallel = tensor_parallel;
  return CostModel(model(name), deployment, find_device("h200", kCatalog), find_engine_profile("vllm", kCatalog));
}

// Of a prompt and answer that fill whole pages.
std::uint64_t cache_of(const std::string& name, std::uint32_t tensor_parallel) {
  const CostModel cost = cost_of(name, tensor_parallel);
  return cost.memory().ledger(full_attention_summary(cost.shape(), 2048, 16), 3).kv_allocated.value;
}

}  // namespace

TEST_CASE("a ledger has the rows that layers of each kind hold, and none of those that read others'") {
  for (const char* name : {"gemma-4-31b", "gemma-4-e2b", "gemma-3n-e4b", "step-3.5-flash"}) {
    INFO(name);
    CHECK(cache_of(name, 1) == 3 * kv_bytes(model(name), DType::kBF16, 2064).value);
  }
}

TEST_CASE("a device has of each kind of layer the share that its KV heads spread to") {
  // 40 layers show 1,024 tokens of 8 KV heads of 256, 8 layers all tokens of one of 512.
  const auto bytes = [](std::uint32_t devices) {
    const CostModel cost = cost_of("gemma-4-12b", devices);
    return static_cast<double>(
        cost.memory().ledger(full_attention_summary(cost.shape(), 16384, 256), 1).kv_allocated.value);
  };
  constexpr double kMib = 1 << 20;
  for (const std::uint32_t devices : {1U, 2U, 4U, 8U}) {
    CHECK(bytes(devices) / kMib == Approx(320.0 / devices + 260).epsilon(1e-6));
  }
  const auto reading = [](std::uint32_t devices) {
    const CostModel cost = cost_of("gemma-4-12b", devices);
    return cost.predict(full_attention_summary(cost.shape(), 16384, 256), 64).terms[1].value;
  };
  CHECK(reading(8) / reading(4) == Approx(300.0 / 340).epsilon(0.1));
  CHECK(deployment_problem(model("step-3.5-flash"), cost_of("step-3.5-flash", 8).deployment()).empty());
  Deployment odd = cost_of("gemma-4-e2b", 1).deployment();
  odd.tensor_parallel = 16;
  CHECK(deployment_problem(model("gemma-4-e2b"), odd).find("8 query heads cannot be spread") == 0);
}

TEST_CASE("so has it of rows that windows no longer show, and of prompts that are evicted from") {
  constexpr double kMib = 1 << 20;
  for (const std::uint32_t devices : {1U, 4U, 8U}) {
    Deployment deployment = TrafficTypes{DType::kBF16, DType::kBF16};
    deployment.tensor_parallel = devices;
    const CostModel keeping(model("gemma-4-12b"), deployment, find_device("h200", kCatalog),
                            find_engine_profile("tensorrt-llm", kCatalog));
    const ResidencySummary whole = full_attention_summary(keeping.shape(), 16384, 256);
    const auto kept = static_cast<double>(keeping.memory().ledger(whole, 1).kv_allocated.value);
    CHECK(kept / kMib == Approx(5200.0 / devices + 260).epsilon(1e-6));
    CHECK(keeping.memory().prompt_bytes(16640) / kMib == Approx(5200.0 / devices + 260).epsilon(1e-6));
    ResidencySummary evicted = whole;
    evicted.evicts = true;
    evicted.prefill.resident = whole.prefill.resident / 4;
    const CostModel cost = cost_of("gemma-4-12b", devices);
    const auto transient = static_cast<double>(cost.memory().ledger(evicted, 1).prefill_transient.value);
    CHECK(transient / kMib == Approx(0.75 * (320.0 / devices + 256)).epsilon(1e-6));
  }
}

TEST_CASE("a prompt that is evicted from takes no more beside windows than what they show of it") {
  // 52 layers show 1,024 tokens, 10 all of them; 16 KV heads of 128.
  const CostModel cost = cost_of("gemma-3-27b", 1);
  ResidencySummary r = full_attention_summary(cost.shape(), 65536, 16);
  const std::uint64_t shown = 16 * (10 * 65536 + 52 * 1024);
  CHECK(r.prefill.resident == shown);
  r.evicts = true;
  r.prefill.resident = shown / 4;
  CHECK(cost.memory().ledger(r, 1).prefill_transient.value == (shown - shown / 4) * 512);
}

TEST_CASE("a drafting layer is one of most of its model's") {
  for (const char* name : {"gemma-4-31b", "gemma-4-e2b", "llama-4-scout", "falcon-h1-34b"}) {
    INFO(name);
    const Draft draft = mtp_draft(model(name));
    CHECK(shape_problem(*draft.shape).empty());
    CHECK(draft.shape->layers == 1);
    CHECK(kv_bytes_per_token(*draft.shape, DType::kBF16).value ==
          2 * std::uint64_t{draft.shape->kv_heads} * draft.shape->row_width());
  }
}

}  // namespace kvroof
