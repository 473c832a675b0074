// The limit beside which kernels without fma are read: multiplications and additions between registers, one core.
#include <benchmark/benchmark.h>

#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/machine_rate_bench.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvroof::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent chains, enough that neither unit waits for the other; each turn multiplies and adds once in each.
constexpr std::size_t kChains = 14;
constexpr std::size_t kTurns = 1000;

HWY_ATTR std::size_t multiply_and_add(float* out) {
  const hn::CappedTag<float, 16> f;
  const auto factor = hn::Set(f, 0.999F);
  const auto term = hn::Set(f, out[0]);
  hn::Vec<decltype(f)> chains[kChains];
  for (auto& chain : chains) chain = hn::Zero(f);
  for (std::size_t turn = 0; turn < kTurns; ++turn) {
    for (auto& chain : chains) chain = hn::Add(hn::Mul(chain, factor), term);
  }
  auto sum = chains[0];
  for (std::size_t c = 1; c < kChains; ++c) sum = hn::Add(sum, chains[c]);
  out[0] = hn::GetLane(sum) * 1e-9F;
  return kChains * kTurns * hn::Lanes(f);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvroof::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvroof::bench {

HWY_EXPORT(multiply_and_add);

void machine_multiply_and_add(benchmark::State& state) {
  float value = 1;
  std::int64_t items = 0;
  for (auto _ : state) {
    items += static_cast<std::int64_t>(HWY_DYNAMIC_DISPATCH(multiply_and_add)(&value));
    benchmark::DoNotOptimize(value);
  }
  state.SetItemsProcessed(items);
}
BENCHMARK(machine_multiply_and_add);

}  // namespace kvroof::bench
#endif
