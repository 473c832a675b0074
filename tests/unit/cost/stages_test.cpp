// Layers one part after another over devices, and experts whole on groups of them.
#include <algorithm>

#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

ModelShape model(const std::string& name) { return find_model_shape(name, kCatalog); }

Deployment over(std::uint32_t tensor, std::uint32_t stages, std::uint32_t experts = 1) {
  Deployment deployment = TrafficTypes{DType::kBF16, DType::kBF16};
  deployment.tensor_parallel = tensor;
  deployment.stages = stages;
  deployment.expert_parallel = experts;
  return deployment;
}

CostModel cost_of(const Deployment& deployment, const std::string& engine = "vllm",
                  const std::string& device = "h100-sxm") {
  return CostModel(model("llama-3.1-70b"), deployment, find_device(device, kCatalog),
                   find_engine_profile(engine, kCatalog));
}

ResidencySummary work(const CostModel& cost) { return full_attention_summary(cost.shape(), 512, 8); }

}  // namespace

TEST_CASE("where stages work at once, a pass has a part of the sequences, and each of them a token after it") {
  const CostModel cost = cost_of(over(4, 2));
  REQUIRE(cost.engine().overlaps_stages);
  CHECK(cost.in_a_pass(1) == 1);
  CHECK(cost.in_a_pass(64) == 32);
  CHECK(cost.in_a_pass(65) == 33);
  const Prediction p = cost.predict(work(cost), 64);
  CHECK(p.step.value == cost.step(work(cost), 32).value);
  CHECK(p.tokens_per_s.value == Approx(64 / p.step.value));
  CHECK(p.kv_resident.value == cost_of(over(4, 1)).predict(work(cost), 64).kv_resident.value);
}

TEST_CASE("where one stage waits for another, more of them make no more tokens of the same batch") {
  const CostModel one = cost_of(over(4, 1), "graphs"), two = cost_of(over(4, 2), "graphs");
  REQUIRE_FALSE(two.engine().overlaps_stages);
  CHECK(two.in_a_pass(64) == 64);
  CHECK(two.predict(work(two), 64).tokens_per_s.value < one.predict(work(one), 64).tokens_per_s.value);
}

TEST_CASE("a large batch makes up to twice as many tokens with twice the stages, and never more") {
  const CostModel one = cost_of(over(4, 1)), two = cost_of(over(4, 2));
  for (const std::uint64_t batch : {2, 16, 128, 1024}) {
    INFO(batch);
    const double once = one.predict(work(one), batch).tokens_per_s.value;
    const double twice = two.predict(work(two), batch).tokens_per_s.value;
    CHECK(twice > once);
    CHECK(twice < 2 * once);
  }
}

TEST_CASE("stages beyond the devices that links join hand over through network cards") {
  const CostModel within = cost_of(over(4, 2)), beyond = cost_of(over(8, 2));
  const CostModel rack = cost_of(over(8, 2), "vllm", "h100-sxm:link_devices=16");
  const auto prompt = [](const CostModel& cost) {
    return cost.prefill(full_attention_summary(cost.shape(), 8192, 8), 1);
  };
  // 8192 rows of 8192 numbers of 2 bytes, once; at 0.55 of 450 GB/s, or of a card of 0.78 · 64 GB/s, 20 us later.
  const double bytes = 8192.0 * 8192 * 2;
  CHECK(prompt(beyond).value - prompt(rack).value ==
        Approx(20e-6 + bytes / (0.55 * 0.78 * 64e9) - bytes / (0.55 * 450e9)).epsilon(1e-6));
  CHECK(prompt(within).value == prompt(cost_of(over(4, 2), "vllm", "h100-sxm:link_devices=16")).value);
}

TEST_CASE("memory has room for the fullest stage: whole layers, and a head or an embedding") {
  const auto ledger = [](std::uint32_t stages) {
    const CostModel cost = cost_of(over(1, stages));
    return cost.memory().ledger(work(cost), 1);
  };
  // 80 layers and two matrices of 128256 · 8192 numbers of 2 bytes.
  const double all = static_cast<double>(ledger(1).weights.value), end = 2.0 * 128256 * 8192;
  const double layer = (all - 2 * end) / 80;
  CHECK(static_cast<double>(ledger(4).weights.value) == Approx(20 * layer + end));
  // Two of three stages have a layer more, and so one with the embedding or the head; 39 of 41 may lie between these.
  CHECK(static_cast<double>(ledger(3).weights.value) == Approx(27 * layer + end));
  CHECK(static_cast<double>(ledger(41).weights.value) == Approx(std::max(2 * layer, layer + end)));
  CHECK(static_cast<double>(ledger(79).weights.value) == Approx(std::max(2 * layer, layer + end)));
  CHECK(ledger(79).kv_allocated.value == Approx(2 * static_cast<double>(ledger(1).kv_allocated.value) / 80));
}

TEST_CASE("where stages differ, vLLM's ends have the fewer layers, and others' ends may have the more") {
  const auto weights = [](const std::string& engine, std::uint32_t stages) {
    const CostModel cost = cost_of(over(1, stages), engine, "h200");
    return static_cast<double>(cost.memory().ledger(work(cost), 1).weights.value);
  };
  const double all = weights("vllm", 1), end = 2.0 * 128256 * 8192, layer = (all - 2 * end) / 80;
  // TensorRT-LLM gives the first stages one more (Mapping.pp_layers), vLLM those between.
  CHECK(weights("tensorrt-llm", 7) == Approx(12 * layer + end));
  CHECK(weights("vllm", 7) == Approx(std::max(12 * layer, 11 * layer + end)));
  CHECK(weights("tensorrt-llm", 8) == Approx(weights("vllm", 8)));
}

TEST_CASE("experts lie whole on as many groups as divide them, of a model that has some") {
  CHECK(deployment_problem(model("deepseek-v3"), over(8, 1, 8)).empty());
  CHECK(deployment_problem(model("gpt-oss-20b"), over(64, 1, 64)) ==
        "32 experts cannot be spread over 64 groups of devices");
  CHECK(deployment_problem(model("llama-3.1-70b"), over(8, 1, 8)) ==
        "llama-3.1-70b has no experts, to be spread over 8 groups of devices");
  CHECK(over(8, 2, 8).devices() == 16);
}

TEST_CASE("stages of a model whose head an engine unties hold the embedding at one end and the head at the other") {
  const auto weights = [](const char* engine, std::uint32_t stages) {
    const CostModel cost(model("bloom-7b1"), over(1, stages), find_device("a100-80g", kCatalog),
                         find_engine_profile(engine, kCatalog));
    return static_cast<double>(cost.memory().ledger(work(cost), 1).weights.value);
  };
  // BLOOM's embedding has 250,880 rows of 4,096; its 30 layers divide evenly.
  const double end = 2.0 * 250880 * 4096;
  CHECK(weights("fastertransformer", 1) - weights("kvroof", 1) == Approx(end));
  CHECK(weights("fastertransformer", 2) == Approx(weights("kvroof", 2)));
  CHECK(weights("kvroof", 2) == Approx((weights("kvroof", 1) - end) / 2 + end).epsilon(1e-3));
}

TEST_CASE("stages that no link joins hand over by PCIe, or beyond a server by its network card") {
  const auto hand_over = [](const char* device, std::uint32_t of_a_stage, std::uint32_t stages) {
    const auto links = [&](std::uint64_t batch) {
      const CostModel cost = cost_of(over(of_a_stage, stages), "kvroof", device);
      return cost.predict(work(cost), batch).terms[static_cast<std::size_t>(CostTerm::kLinks)].value;
    };
    return links(1) / (stages - 1);
  };
  // One token's 8,192 numbers of 2 bytes: 0.55 of 300 GB/s over the bridge of two boards, of 64 over PCIe, which starts
  // 20 us later.
  const double bytes = 8192 * 2, start = hand_over("h100-pcie", 1, 2) - bytes / (0.55 * 300e9);
  CHECK(hand_over("h100-pcie", 1, 4) == Approx(start + 20e-6 + bytes / (0.55 * 64e9)));
  // Eight are joined by links; of sixteen some are reached over a card of 0.78 of PCIe's rate, which starts as late.
  const double inside = hand_over("h100-sxm", 1, 8) - bytes / (0.55 * 450e9);
  CHECK(hand_over("h100-sxm", 1, 16) == Approx(inside + 20e-6 + bytes / (0.55 * 0.78 * 64e9)));
}

}  // namespace kvroof
