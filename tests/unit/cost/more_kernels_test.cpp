// Experts and latent attention launch more kernels than plain layers do.
#include "sim/cost/cost.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

double seconds(const char* model, const EngineProfile& engine, CostTerm term) {
  const CostModel cost(find_model_shape(model, kCatalog), TrafficTypes{DType::kBF16, DType::kBF16},
                       find_device("h100-sxm", kCatalog), engine);
  return cost.predict(full_attention_summary(cost.shape(), 64, 8), 1).terms[static_cast<std::size_t>(term)].value;
}

}  // namespace

TEST_CASE("experts, shared ones and latent attention have the gaps of the kernels that they launch more") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const auto gaps = [&](const char* model) {
    engine.gap_us = 0;
    const double without = seconds(model, engine, CostTerm::kHost);
    engine.gap_us = 1;
    return 1e6 * (seconds(model, engine, CostTerm::kHost) - without);
  };
  CHECK(gaps("llama-2-7b") == Approx(32 * 10));
  // A router and two kernels around the experts.
  CHECK(gaps("mixtral-8x7b") == Approx(32 * (10 + 1 + 2)));
  // 61 layers of latent attention, five products in place of two and two norms; 58 of them routed, with a shared expert
  // of two products, an activation and a sum.
  CHECK(gaps("deepseek-v3") == Approx(61 * (10 + 3 + 2) + 58 * (1 + 2 + 4)));
}

TEST_CASE("kernels around the experts start one by one") {
  EngineProfile engine = find_engine_profile("graphs", kCatalog);
  const double two = seconds("mixtral-8x7b", engine, CostTerm::kElementwise);
  const double plain = seconds("llama-2-7b", engine, CostTerm::kElementwise);
  engine.routed_kernels = 5;
  // 32 layers, a start of 3.6 us on H100.
  CHECK(seconds("mixtral-8x7b", engine, CostTerm::kElementwise) - two == Approx(32 * 3 * 3.6e-6));
  CHECK(seconds("llama-2-7b", engine, CostTerm::kElementwise) == plain);
}

}  // namespace kvroof
