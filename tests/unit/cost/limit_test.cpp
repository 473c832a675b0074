// What no time is below and no rate above: the datasheet's bandwidth and peaks.
#include <filesystem>

#include "analysis/conformal.hpp"
#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
constexpr TrafficTypes kF16 = {DType::kF16, DType::kF16};
constexpr double kCaches = 256.0 * 1024 * 1024;

CostModel on(const char* device, const char* model, const Deployment& deployment = kF16) {
  return {find_model_shape(model, kCatalog), deployment, find_device(device, kCatalog),
          find_engine_profile("graphs", kCatalog)};
}

}  // namespace

TEST_CASE("no step is faster than the datasheet reads what no cache holds, and no prompt than it computes, by hand") {
  const CostModel cost = on("h100-sxm", "llama-2-7b");
  const ResidencySummary r = full_attention_summary(cost.shape(), 1000, 1);
  const double weights = 2.0 * (6738415616.0 - 32000.0 * 4096 + 4096), kv = 8 * 1001.0 * 32 * 32 * 512;
  const Prediction step = cost.predict(r, 8);
  // Eight rows of the table of tokens are read in place of one.
  CHECK(step.step.limit == Approx((weights + kv - kCaches) / 3350e9).epsilon(1e-5));
  CHECK(step.step.limit < step.step.value);
  CHECK(step.tokens_per_s.limit == Approx(8 / step.step.limit));
  const double matrices = 32.0 * (4.0 * 4096 * 4096 + 3.0 * 4096 * 11008), head = 32000.0 * 4096;
  const double pairs = 1000.0 * 1001 / 2 * 4 * 32 * 4096;  // q · k and p · v
  CHECK(cost.prefill(r, 1).limit == Approx((2000 * matrices + 2 * head + pairs) / 989.4e12).epsilon(1e-2));
}

TEST_CASE("no prompt is faster than the products that its weights have on the board: fp8's, those of 8 bits, or 16") {
  const auto fastest = [](const char* device, const char* format, KvType kv = DType::kF16) {
    const Deployment deployment({DType::kF16, kv}, parse_weight_format(format).value());
    const CostModel cost = on(device, "llama-3.1-8b", deployment);
    return cost.prefill(full_attention_summary(cost.shape(), 8192, 1), 1).limit;
  };
  // Matrices of all layers, and the head of one token; attention is in 16 bits, as the cache is.
  const double linear = 2 * 8192 * 32.0 * (2 * 4096.0 * 4096 + 2 * 4096.0 * 1024 + 3 * 4096.0 * 14336);
  const double attention = 8192.0 * 8193 / 2 * 4 * 32 * 4096;
  CHECK(fastest("b200", "fp8") == Approx(linear / 4500e12 + attention / 2250e12).epsilon(0.01));
  CHECK(fastest("b200", "fp8", KvType::kFp8) == Approx((linear + attention) / 4500e12).epsilon(0.01));
  CHECK(fastest("h100-sxm", "nvfp4") == Approx(linear / 1979e12 + attention / 989.4e12).epsilon(0.01));
  CHECK(fastest("b200", "bf16") == Approx((linear + attention) / 2250e12).epsilon(0.01));
  CHECK(fastest("a100-80g", "fp8") == Approx((linear + attention) / 312e12).epsilon(0.01));  // which has no fp8
  CHECK(fastest("a100-80g", "int4") == Approx(linear / 624e12 + attention / 312e12).epsilon(0.01));
}

TEST_CASE("two devices read half each, tokens may share experts, and caches hold the models of a CPU") {
  Deployment two = kF16;
  two.tensor_parallel = 2;
  const auto limit = [](const CostModel& cost) {
    return cost.predict(full_attention_summary(cost.shape(), 1000, 1), 8).step.limit;
  };
  const double bandwidth = 3350e9, cached = kCaches / bandwidth;
  CHECK(limit(on("h100-sxm", "llama-2-7b", two)) + cached ==
        Approx((limit(on("h100-sxm", "llama-2-7b")) + cached) / 2));
  // q, k, v, o and the router of a layer, and the head: of 8 KV heads.
  const double plain = 2 * (32.0 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096) + 32000.0 * 4096);
  CHECK(limit(on("h100-sxm", "mixtral-8x7b")) ==
        Approx((plain + 8 * 1001.0 * 32 * 8 * 512 - kCaches) / bandwidth).epsilon(1e-3));
  Device cpu = find_device("h100-sxm", kCatalog);
  cpu.kind = DeviceKind::kCpu;
  CHECK(limit({find_model_shape("llama-2-7b", kCatalog), kF16, cpu, find_engine_profile("graphs", kCatalog)}) == 0);
}

TEST_CASE("intervals end where the datasheet does: times below, rates above") {
  Estimate time{10, 8, 12.5, 7, 14, CostTerm::kLinear, 9};
  const IntervalFactors twice{2, 3, "", ""};
  CHECK(with_factors(time, twice).low80 == 9);
  CHECK(with_factors(time, twice).low95 == 9);
  CHECK(with_factors(time, twice).high80 == Approx(10 * 1.25 * 1.25));
  const Estimate rate = throughput(time, 1);
  CHECK(with_factors(rate, twice).high80 == Approx(1 / 9.0));
  CHECK(with_factors(rate, twice).low80 == Approx(0.1 / (1.25 * 1.25)));
  time.limit = 0;  // not known
  CHECK(with_factors(time, twice).low80 == Approx(10 / (1.25 * 1.25)));
}

}  // namespace kvroof
