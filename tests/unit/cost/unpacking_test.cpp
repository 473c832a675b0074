// Products whose weights are unpacked to the activations' type: their start, their rate and their arithmetic.
#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";
constexpr TrafficTypes kBf16 = {DType::kBF16, DType::kBF16};
constexpr auto kLinear = static_cast<std::size_t>(CostTerm::kLinear);

Deployment stored_as(const char* format) { return {kBf16, parse_weight_format(format).value()}; }

// Of a step of one sequence of Llama-2-7B, or of its prompt.
double linear_seconds(const EngineProfile& engine, const char* format, const char* device) {
  const CostModel cost(find_model_shape("llama-2-7b", kCatalog), stored_as(format), find_device(device, kCatalog),
                       engine);
  return cost.predict(full_attention_summary(cost.shape(), 64, 8), 1).terms[kLinear].value;
}

}  // namespace

TEST_CASE("rows beyond the first lengthen products of unpacked weights by the engine's share, up to eight of them") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const auto linear = [&](const char* format, std::uint64_t batch, double share) {
    engine.column_share = share;
    const CostModel cost(find_model_shape("llama-3-8b", kCatalog),
                         Deployment({DType::kBF16, DType::kBF16}, *parse_weight_format(format)),
                         find_device("rtx-3090", kCatalog), engine);
    constexpr auto kLinear = static_cast<std::size_t>(CostTerm::kLinear);
    return cost.predict(full_attention_summary(cost.shape(), 512, 2), batch).terms[kLinear].value;
  };
  CHECK(linear("Q4_0", 1, 0.13) == linear("Q4_0", 1, 0));
  const double one = linear("Q4_0", 1, 0.13), starts = 129 * 3.6e-6;
  // 4.5 of the 4.7 GB are packed, all are read once a row.
  for (const double rows : {2, 4, 8}) {
    const double share = (linear("Q4_0", static_cast<std::uint64_t>(rows), 0.13) - starts) / (one - starts);
    CHECK(share == Approx(1 + 0.13 * (rows - 1)).epsilon(0.06));
  }
  CHECK(linear("Q4_0", 9, 0.13) - linear("Q4_0", 8, 0.13) < 0.05 * one);
  CHECK(linear("bf16", 8, 0.13) == linear("bf16", 8, 0));
}

TEST_CASE("products of weights that are unpacked start as many times later as the engine's kernels do, others do not") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const auto later = [&](const char* format, const char* device) {
    engine.unpacked_starts = 1;
    const double before = linear_seconds(engine, format, device);
    engine.unpacked_starts = 3;
    return linear_seconds(engine, format, device) - before;
  };
  // 32 layers of four products and a head; a start is 3.6 us on H100 and 5.3 us on A100.
  CHECK(later("int4", "h100-sxm") == Approx(129 * 2 * 3.6e-6));
  CHECK(later("int8-wo", "a100-80g") == Approx(129 * 2 * 5.3e-6));
  CHECK(later("fp8", "a100-80g") == Approx(129 * 2 * 5.3e-6));  // which has no products of fp8
  CHECK(later("fp8", "h100-sxm") == 0);
  CHECK(later("bf16", "h100-sxm") == 0);
}

TEST_CASE("kernels that unpack with fewer operations are bound by them later") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const double generated = linear_seconds(engine, "int4", "a100-80g");
  engine.unpacking = 0.7;
  // 32 · (4 · 4096² + 3 · 4096 · 11008) parameters, 11 operations each, 19.5 TFLOP/s.
  CHECK(generated - linear_seconds(engine, "int4", "a100-80g") ==
        Approx(6476005376 * 0.3 * 11 / 19.5e12).epsilon(1e-3));
  CHECK(linear_seconds(engine, "bf16", "a100-80g") ==
        linear_seconds(find_engine_profile("graphs", kCatalog), "bf16", "a100-80g"));
}

TEST_CASE("prompts of unpacked weights reach a share of the arithmetic of 16-bit products and are never faster") {
  const auto prompt = [](const EngineProfile& engine, const char* format) {
    const CostModel cost(find_model_shape("llama-2-7b", kCatalog), stored_as(format), find_device("h100-sxm", kCatalog),
                         engine);
    return cost.prefill(full_attention_summary(cost.shape(), 4096, 8), 8).value;
  };
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const double whole = prompt(engine, "int4"), plain = prompt(engine, "bf16");
  engine.unpacked_share = 0.5;
  // 32,768 tokens pass 6.476e9 parameters of the layers: 2 operations each, twice as slow.
  const Device h100 = find_device("h100-sxm", kCatalog);
  const double peak = 0.97 * h100.value(DeviceField::kMatmulFraction) * h100.peak(DType::kBF16).value;
  const double products = 2 * 32768 * 6476005376.0 / peak;
  CHECK(prompt(engine, "int4") - whole == Approx(products).epsilon(0.01));
  CHECK(prompt(engine, "bf16") == plain);
  for (const char* name : {"tensorrt-llm", "tensorrt-llm@0.15", "vllm", "sglang"}) {
    INFO(name);
    const EngineProfile serving = find_engine_profile(name, kCatalog);
    CHECK(prompt(serving, "int4") >= 0.999 * prompt(serving, "bf16"));
  }
  CHECK(prompt(find_engine_profile("tensorrt-llm@0.15", kCatalog), "int4") >
        1.3 * prompt(find_engine_profile("tensorrt-llm@0.15", kCatalog), "bf16"));
}

}  // namespace kvroof
