// The limits beside which kernels without fma are read: multiplications and additions between registers, and what
// several threads leave of one core's speed where nothing is shared but the machine.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/thread_pool.hpp"

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

// Each thread works for about a millisecond between two meetings, as threads of a replay do, on memory of its own. The
// rate is one core's: of the processor time of all threads.
template <class Work>
void on_threads(benchmark::State& state, const Work& work) {
  const auto threads = static_cast<unsigned>(state.range(0));
  ThreadPool pool(threads);
  std::vector<std::size_t> done(threads * 16);
  for (auto _ : state) {
    pool.parallel_for(threads * 8, [&](std::size_t task) { done[task * 2] += work(task); });
  }
  std::size_t items = 0;
  for (const std::size_t count : done) items += count;
  state.SetItemsProcessed(static_cast<std::int64_t>(items));
}

void machine_multiply_and_add(benchmark::State& state) {
  on_threads(state, [](std::size_t) {
    std::size_t items = 0;
    for (int i = 0; i < 25; ++i) {
      float value = 1;  // a result fed back would soon be subnormal
      items += HWY_DYNAMIC_DISPATCH(multiply_and_add)(&value);
      benchmark::DoNotOptimize(value);
    }
    return items;
  });
}

// Exponentials of rows that lie in the second-level cache: arithmetic, loads and stores as scoring has them.
void machine_cached_exponentials(benchmark::State& state) {
  constexpr std::size_t kRow = 2048;
  constexpr std::size_t kRows = 16;
  on_threads(state, [](std::size_t) {
    thread_local std::vector<float> rows(kRow * kRows, 0.5F), out(kRow * kRows);
    for (std::size_t turn = 0; turn < 4 * kRows; ++turn) {
      const std::size_t at = turn % kRows * kRow;
      benchmark::DoNotOptimize(exponentials(std::span(rows).subspan(at, kRow), std::span(out).subspan(at, kRow)));
    }
    return 4 * kRows * kRow;
  });
}

void one_and_two(benchmark::internal::Benchmark* b) { b->ArgName("threads")->Arg(1)->Arg(2)->MeasureProcessCPUTime(); }
BENCHMARK(machine_multiply_and_add)->Apply(one_and_two);
BENCHMARK(machine_cached_exponentials)->Apply(one_and_two);

}  // namespace kvroof::bench
#endif
