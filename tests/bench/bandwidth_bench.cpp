// Memory: what reading and copying reach, and how near the products of the fast back end come to reading.
//
// A product and the read that is its limit run in turn in one benchmark, and the best of each counts: other programs on
// the machine, and a clock that changes, then hit both alike. Counters are in bytes per second.
#include <benchmark/benchmark.h>

#include "kernels/cpu/bandwidth.hpp"
#include "kernels/cpu/fast_ops.hpp"

namespace {

using namespace kvroof;

constexpr int kRounds = 20;

Weight constant_weight(DType type, std::size_t rows, std::size_t cols) {
  Weight w{type, rows, cols, AlignedBytes(rows * cols * size_of(type))};
  std::fill_n(reinterpret_cast<std::uint16_t*>(w.data.data()), w.data.size() / 2, std::uint16_t{0x3f80});
  return w;
}

void report(benchmark::State& state, double bytes, const Timing& work, double read_bytes, const Timing& read) {
  state.counters["bytes_per_s"] = bytes / work.best();
  state.counters["limit_bytes_per_s"] = read_bytes / read.best();
  state.counters["share_of_limit"] = bytes / work.best() / (read_bytes / read.best());
}

// A matrix with 4,096 columns that no cache holds, times a few vectors.
void matrix_vector(benchmark::State& state, DType type) {
  const auto threads = static_cast<unsigned>(state.range(0));
  const auto tokens = static_cast<std::size_t>(state.range(1));
  MemoryProbe probe(threads, uncached_bytes());
  const std::size_t cols = 4096;
  const Weight w = constant_weight(type, uncached_bytes() / (cols * size_of(type)), cols);
  const auto ops = make_fast_ops(threads);
  const std::vector<float> x(tokens * cols, 0.5F);
  std::vector<float> out(tokens * w.rows);
  Timing product, read;
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i) {
      read.run([&] { benchmark::DoNotOptimize(probe.read()); });
      product.run([&] { ops->linear(x, w, nullptr, out); });
    }
  }
  report(state, static_cast<double>(w.bytes()), product, static_cast<double>(probe.bytes_read()), read);
}

// One layer's decode attention, 32 heads of 128, over k and v that no cache holds.
void decode_attention(benchmark::State& state, DType type) {
  constexpr std::uint32_t kHeads = 32;
  constexpr std::size_t kHeadDim = 128;
  const auto threads = static_cast<unsigned>(state.range(0));
  MemoryProbe probe(threads, uncached_bytes());
  const auto slots = static_cast<std::uint32_t>(uncached_bytes() / (kHeads * kHeadDim * 2 * size_of(type)));
  const Weight kv = constant_weight(type, std::size_t{2} * kHeads * slots, kHeadDim);
  LayerPolicy policy({"full", {}, false, {}}, PolicyContext{}, kHeads, kHeads);
  const std::vector<float> q(kHeads * kHeadDim, 0.01F);
  std::vector<float> out(q.size());
  std::vector<AttendCall> calls;
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    for (std::uint32_t i = 0; i < slots; ++i) policy.admit(HeadId(h), TokenPos(i));
    RowsView keys = kv.view();
    keys.count = slots;
    keys.data = kv.view().row(std::size_t{2} * h * slots);
    RowsView values = keys;
    values.data = kv.view().row((std::size_t{2} * h + 1) * slots);
    calls.push_back({std::span(q).subspan(h * kHeadDim, kHeadDim), keys, values,
                     std::span(out).subspan(h * kHeadDim, kHeadDim), TokenPos(slots - 1), &policy, HeadId(h), h});
  }
  const auto ops = make_fast_ops(threads);
  Timing attention, read;
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i) {
      read.run([&] { benchmark::DoNotOptimize(probe.read()); });
      attention.run([&] { ops->attend(calls, {}); });
    }
  }
  report(state, static_cast<double>(kv.bytes()), attention, static_cast<double>(probe.bytes_read()), read);
}

void copy(benchmark::State& state) {
  MemoryProbe probe(static_cast<unsigned>(state.range(0)), uncached_bytes());
  Timing timing;
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i) timing.run([&] { probe.copy(); });
  }
  state.counters["bytes_per_s"] = static_cast<double>(probe.bytes_copied()) / timing.best();
}

// One thread and all of them; once where that is the same.
std::vector<std::int64_t> thread_counts() {
  const auto all = static_cast<std::int64_t>(default_threads());
  return all == 1 ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{1, all};
}

void threads_and_tokens(benchmark::internal::Benchmark* b) {
  b->ArgNames({"threads", "tokens"})->Iterations(1)->Unit(benchmark::kMillisecond);
  for (const std::int64_t threads : thread_counts()) b->Args({threads, 1});
  b->Args({static_cast<std::int64_t>(default_threads()), 8});
}

void threads_only(benchmark::internal::Benchmark* b) {
  b->ArgName("threads")->Iterations(1)->Unit(benchmark::kMillisecond);
  for (const std::int64_t threads : thread_counts()) b->Arg(threads);
}

BENCHMARK_CAPTURE(matrix_vector, bf16, DType::kBF16)->Apply(threads_and_tokens);
BENCHMARK_CAPTURE(matrix_vector, f16, DType::kF16)->Apply(threads_and_tokens);
BENCHMARK_CAPTURE(matrix_vector, f32, DType::kF32)->Apply(threads_and_tokens);
BENCHMARK_CAPTURE(decode_attention, bf16, DType::kBF16)->Apply(threads_only);
BENCHMARK_CAPTURE(decode_attention, f32, DType::kF32)->Apply(threads_only);
BENCHMARK(copy)->Apply(threads_only);

}  // namespace
