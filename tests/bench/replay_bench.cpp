// The whole replay of a trace, one core: reading, logits from q and k, softmax, scores, victims, recall, output error.
//
// An element·policy is one resident slot of one row of one query head under one point. `decode` counts only the steps
// after the prompt, where every point has slots of its own; the prompt's rows are shared by all points until the first
// eviction.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <filesystem>
#include <string>

#include "sim/replay/replay.hpp"
#include "tests/support/qkv_trace.hpp"

namespace {

using namespace kvroof;
using namespace kvroof::test;

// Two layers of four heads of 64, a prompt of 1,024 and as many decoded tokens.
struct BenchTrace {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("kvroof-bench-" + std::to_string(getpid()) + ".kvt");

  ~BenchTrace() { std::filesystem::remove_all(path); }
  BenchTrace(const BenchTrace&) = delete;
  BenchTrace& operator=(const BenchTrace&) = delete;
  BenchTrace(DType type, std::uint32_t tokens) {
    std::filesystem::remove_all(path);
    Qkv shape;
    shape.layers = 2;
    shape.heads = shape.kv_heads = 4;
    shape.tokens = tokens;
    shape.d = 64;
    shape.type = type;
    TraceOptions options;
    options.prompt = 1024;
    write_trace(path, random_qkv(shape, 1), options);
  }
};

std::string eight_points(const std::string& policy) {
  std::string text;
  for (int i = 1; i <= 8; ++i) text += (i > 1 ? "," : "") + policy + ":budget=" + std::to_string(100 * i);
  return text;
}

// Slots attended by all points, in rows of query heads.
double element_policies(const std::vector<PointResult>& results) {
  double sum = 0;
  for (const PointResult& result : results) {
    const Residency r = result.residency[0].expand();
    for (const LayerCounts& c : r.cells) sum += static_cast<double>(c.attended);
  }
  return sum;
}

void whole_replay(benchmark::State& state, const std::string& policy, DType type, std::uint32_t tokens,
                  MeasureOptions measure) {
  const BenchTrace files(type, tokens);
  const TraceReader trace = TraceReader::open(files.path);
  const auto points = parse_policies(eight_points(policy));
  ThreadPool pool(1);
  double elements = 0;
  for (auto _ : state) {
    const auto results = replay(trace, points, {0, measure, nullptr}, pool);
    elements += element_policies(results);
  }
  state.counters["element_policies"] = benchmark::Counter(elements, benchmark::Counter::kIsRate);
}

constexpr MeasureOptions kDecisions = {false, false};
constexpr MeasureOptions kRecall = {true, false};
constexpr MeasureOptions kAll = {true, true};

BENCHMARK_CAPTURE(whole_replay, h2o_prompt_only, "h2o", DType::kF32, 1024U, kDecisions)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_replay, h2o_decisions, "h2o", DType::kF32, 2048U, kDecisions)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_replay, h2o_recall, "h2o", DType::kF32, 2048U, kRecall)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_replay, h2o_output_error, "h2o", DType::kF32, 2048U, kAll)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_replay, h2o_output_error_bf16, "h2o", DType::kBF16, 2048U, kAll)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_replay, window_recall, "window", DType::kF32, 2048U, kRecall)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(whole_replay, keyformer_recall, "keyformer", DType::kF32, 2048U, kRecall)
    ->Unit(benchmark::kMillisecond);

}  // namespace
