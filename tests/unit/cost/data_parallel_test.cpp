// Groups of devices that attend to sequences of their own and share the experts.
#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
constexpr std::uint32_t kPrompt = 1024, kOutput = 64;

// DeepSeek-V3 in fp8: 58 layers of 256 experts of three matrices of 7168 · 2048, of which a token takes 8.
CostModel deepseek(std::uint32_t tensor, std::uint32_t data, const char* device = "h200", bool whole_experts = true) {
  Deployment deployment({DType::kBF16, DType::kBF16}, parse_weight_format("fp8").value());
  deployment.tensor_parallel = tensor;
  deployment.data_parallel = data;
  deployment.expert_parallel = whole_experts ? tensor * data : 1;
  return CostModel(find_model_shape("deepseek-v3", kCatalog), deployment, find_device(device, kCatalog),
                   find_engine_profile("sglang", kCatalog));
}
ResidencySummary sequences(const CostModel& cost) { return full_attention_summary(cost.shape(), kPrompt, kOutput); }
MemoryLedger ledger(const CostModel& cost, std::uint64_t batch) { return cost.memory().ledger(sequences(cost), batch); }
double term(const CostModel& cost, std::uint64_t batch, CostTerm t) {
  return cost.predict(sequences(cost), batch).terms[static_cast<std::size_t>(t)].value;
}

}  // namespace

TEST_CASE("groups with sequences of their own hold all weights but the experts, which they share") {
  const double routed = 58.0 * 256 * 3 * 7168 * 2048;  // of 8 bits and a scale for each 128 · 128 of them
  const double bytes = routed * parse_weight_format("fp8").value().expert_bits / 8;
  const auto all = static_cast<double>(ledger(deepseek(1, 1), 1).weights.value);
  CHECK(static_cast<double>(ledger(deepseek(8, 1), 1).weights.value) == Approx(all / 8));
  CHECK(static_cast<double>(ledger(deepseek(1, 8), 1).weights.value) == Approx(all - bytes * 7 / 8));
  CHECK(static_cast<double>(ledger(deepseek(2, 4), 1).weights.value) == Approx((all - bytes * 3 / 4) / 2));
}

TEST_CASE("eight groups hold eight times the sequences whose latent rows eight devices would each hold whole") {
  CHECK(ledger(deepseek(1, 8), 8 * 40).kv_allocated == ledger(deepseek(8, 1), 40).kv_allocated);
  CHECK(ledger(deepseek(1, 8), 8 * 40 - 7).kv_allocated == ledger(deepseek(8, 1), 40).kv_allocated);
  CHECK(ledger(deepseek(1, 8), 8 * 40 + 1).kv_allocated == ledger(deepseek(8, 1), 41).kv_allocated);
  const CostModel groups = deepseek(1, 8);
  const std::uint64_t most = groups.memory().largest_batch(sequences(groups));
  CHECK(most % 8 == 0);
  CHECK(ledger(groups, most).fits());
  CHECK_FALSE(ledger(groups, most + 1).fits());
}

TEST_CASE("a group reads its part of the experts that the tokens of all groups chose") {
  // 1024 tokens choose all experts: the eighth of them is on each device of eight, in eight groups as in one; the
  // other weights are whole in each group.
  const CostModel one = deepseek(8, 1), eight = deepseek(1, 8);
  const double shared = term(one, 1024, CostTerm::kLinear), own = term(eight, 1024, CostTerm::kLinear);
  const double routed = 58.0 * 256 * 3 * 7168 * 2048 / 8, beside = 671e9 - 8 * routed;
  CHECK(own > shared * 0.9);
  // At 0.85 of 4.8 TB/s, and no more than twice that with arithmetic and starts.
  CHECK(own - shared < 2 * (beside * 7 / 8) / (0.85 * 4.8e12));
  // A sequence in each group is far from choosing all: less is read than by 64 sequences in each.
  CHECK(term(eight, 8, CostTerm::kLinear) < 0.6 * term(eight, 512, CostTerm::kLinear));
}

TEST_CASE("a sequence more than groups have evenly adds its own experts, not those of one more in every group") {
  const CostModel cost = deepseek(1, 8);
  const ResidencySummary r = sequences(cost);
  const double eight = term(cost, 8, CostTerm::kLinear), nine = term(cost, 9, CostTerm::kLinear);
  const double sixteen = term(cost, 16, CostTerm::kLinear);
  CHECK(eight < nine);
  // 256 (1 − (248/256)^B) of the 256 experts: 8, 9 and 16 sequences ask for 57, 63 and 101 of them.
  CHECK((nine - eight) / (sixteen - eight) == Approx((63.5 - 57.4) / (101.9 - 57.4)).margin(0.08));
  CHECK(cost.step(r, 9).value == Approx(cost.step(r, Pass{2, 9.0 / 16}).value));
  CHECK(cost.step(r, 16).value == Approx(cost.step(r, Pass{2}).value));
  CHECK(cost.predict(r, 9).tokens_per_s.value > cost.predict(r, 8).tokens_per_s.value);
  CHECK(cost.prefill(r, 1).value < cost.prefill(r, 8).value);
  CHECK(cost.prefill(r, 8).value == Approx(cost.prefill(r, Pass{1}).value));
}

// DeepEP's low-latency kernels in SGLang (ai-dynamo/aiconfigurator @095f58a, wideep_deepep_ll_perf; hidden 7168, 8 of
// 256 experts): microseconds of dispatch and combine together with so many tokens on each device.
TEST_CASE("tokens go to their experts and back within 40 % of the time that DeepEP's kernels take") {
  struct Row {
    const char* device;
    std::uint32_t devices;
    std::uint64_t tokens;
    double us;
  };
  for (const Row& r : {Row{"h200", 8, 1, 11.9 + 12.6}, Row{"h200", 8, 128, 35.1 + 67.7},
                       Row{"h200", 8, 1024, 211.1 + 481.0}, Row{"h100-sxm", 8, 16, 15.6 + 20.5},
                       Row{"h100-sxm", 8, 256, 62.6 + 129.5},
                       Row{"h100-sxm", 16, 2, 22.6 + 25.9}, Row{"h100-sxm", 16, 128, 102.1 + 186.2},
                       Row{"h100-sxm", 32, 128, 143.0 + 263.3}, Row{"h100-sxm", 64, 16, 45.7 + 59.6},
                       Row{"h100-sxm", 64, 256, 301.1 + 579.5}, Row{"b200", 8, 128, 33.0 + 40.9},
                       Row{"b200", 8, 1024, 129.6 + 189.3}}) {
    INFO(r.device << " x " << r.devices << ", " << r.tokens << " tokens");
    const CostModel cost = deepseek(1, r.devices, r.device);
    CHECK(1e6 * term(cost, r.devices * r.tokens, CostTerm::kLinks) / 58 == Approx(r.us).epsilon(0.40));
  }
}

TEST_CASE("a token goes to every device that has a slice of its experts: to all of them where none are whole") {
  const auto of_tokens = [](bool whole) {
    const CostModel cost = deepseek(1, 32, "h200", whole);
    return term(cost, 32 * 512, CostTerm::kLinks) - term(cost, 32 * 256, CostTerm::kLinks);
  };
  // Of 32 devices a token's eight experts are on eight, or in slices on all.
  CHECK(of_tokens(false) == Approx(4 * of_tokens(true)).epsilon(1e-6));
}

TEST_CASE("a model without experts has nothing that groups with sequences of their own could share") {
  Deployment deployment = TrafficTypes{DType::kBF16, DType::kBF16};
  deployment.data_parallel = 2;
  const ModelShape dense = find_model_shape("llama-3-8b", kCatalog);
  CHECK(deployment_problem(dense, deployment) ==
        "llama-3-8b has no experts that 2 groups with sequences of their own could share");
  deployment.data_parallel = 0;
  CHECK(deployment_problem(dense, deployment) == "no device would attend to a sequence");
}

}  // namespace kvroof
