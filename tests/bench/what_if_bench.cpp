// A what-if point: one policy's summary, one device, one batch. The goal is 2 us a point.
#include <benchmark/benchmark.h>

#include "sim/cost/cost.hpp"
#include "tests/unit/traffic/synthetic.hpp"

namespace kvroof {
namespace {

const std::filesystem::path kCatalog = std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog";

void what_if_point(benchmark::State& state) {
  const CostModel cost(find_model_shape("llama-2-7b", kCatalog), TrafficTypes{DType::kF16, DType::kF16},
                       find_device("h200", kCatalog), find_engine_profile("graphs", kCatalog));
  const ResidencySummary residency = summarise(synthetic::fraction({2048, 512}, 0.5, 32, 32));
  std::uint32_t batch = 0;
  for (auto _ : state) {
    batch = batch % 256 + 1;
    benchmark::DoNotOptimize(cost.predict(residency, batch));
    benchmark::DoNotOptimize(cost.memory().largest_batch(residency));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(what_if_point);

}  // namespace
}  // namespace kvroof
