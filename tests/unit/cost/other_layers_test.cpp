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

TEST_CASE("the share of a device is that of the layers whose heads spread least") {
  // 16 KV heads in most layers, 4 in the others.
  CHECK(4 * cache_of("gemma-4-31b", 4) == cache_of("gemma-4-31b", 1));
  CHECK(cache_of("gemma-4-31b", 8) == cache_of("gemma-4-31b", 4));
  CHECK(deployment_problem(model("step-3.5-flash"), cost_of("step-3.5-flash", 8).deployment()).empty());
  Deployment odd = cost_of("gemma-4-e2b", 1).deployment();
  odd.tensor_parallel = 16;
  CHECK(deployment_problem(model("gemma-4-e2b"), odd).find("8 query heads cannot be spread") == 0);
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
