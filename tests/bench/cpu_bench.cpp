// The CPU engine: products for prompts against the rate of multiplying in registers, the demo model, and what recording
// costs.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <atomic>

#include "kernels/cpu/bandwidth.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/fast_kernels.hpp"
#include "kernels/cpu/fast_ops.hpp"
#include "kernels/engine/model.hpp"
#include "kernels/engine/session.hpp"
#include "tests/support/loaded_model.hpp"
#include "traces/safetensors.hpp"

namespace {

using namespace kvroof;
namespace fs = std::filesystem;

constexpr int kRounds = 7;

// A prompt of 512 tokens through a matrix of 2,048 × 2,048.
void prompt_product(benchmark::State& state, DType type) {
  const auto threads = static_cast<unsigned>(state.range(0));
  constexpr std::size_t kSize = 2048;
  constexpr std::size_t kTokens = 512;
  const std::vector<float> elements(kSize * kSize, 0.5F);
  const Weight w = make_weight(DType::kF32, reinterpret_cast<const std::byte*>(elements.data()), kSize, kSize, type);
  const std::vector<float> x(kTokens * kSize, 0.5F);
  std::vector<float> out(kTokens * kSize);
  const auto ops = make_fast_ops(threads);
  ThreadPool pool(threads);
  constexpr std::uint64_t kMultiplyAdds = 2000000;
  std::atomic<std::uint64_t> done{0};
  int limit_runs = 0;
  Timing product, limit;
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i, ++limit_runs) {
      limit.run([&] {
        pool.parallel_for(threads, [&](std::size_t) { done += fast::multiply_add_in_registers(kMultiplyAdds); });
      });
      product.run([&] { ops->linear(x, w, nullptr, out); });
    }
  }
  const double rate = 2.0 * kTokens * kSize * kSize / product.best();
  const double limit_rate = static_cast<double>(done) / limit_runs / limit.best();
  state.counters["flops_per_s"] = rate;
  state.counters["limit_flops_per_s"] = limit_rate;
  state.counters["share_of_limit"] = rate / limit_rate;
}

const Model& demo() {
  static const Model model = load_model(fs::path(KVROOF_SOURCE_DIR) / "models/demo", std::nullopt);
  return model;
}

std::vector<std::int64_t> demo_prompt() {
  const fs::path path = demo().path / "reference.safetensors";
  const SafetensorsFile file = SafetensorsFile::open(path).or_throw(path.string());
  auto ids = file.read_integers(*file.header().find("sqlite-rbu.ids"));
  ids.resize(512);
  return ids;
}

struct Phases {
  double prompt = 0;  // seconds until the first token
  double decode = 0;  // seconds of the rest, whatever the recorder does between and after the steps included
};

constexpr std::uint32_t kNewTokens = 257;

Phases run_demo(const std::string& policy, const std::vector<std::int64_t>& prompt, TraceRecorder* recorder) {
  CpuBackend backend(demo(), make_fast_ops(default_threads()), {parse_policies(policy).at(0), 0, demo().type});
  SessionOptions options;
  options.max_new_tokens = kNewTokens;
  options.ignore_eos = true;
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::optional<Clock::time_point> first;
  options.on_token = [&](std::uint32_t, std::int64_t) {
    if (!first) first = Clock::now();
  };
  (void)run_session(backend, demo().config, {prompt}, options, recorder);
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  return {seconds(*first - start), seconds(Clock::now() - *first)};
}

Phases better(Phases a, Phases b) { return {std::min(a.prompt, b.prompt), std::min(a.decode, b.decode)}; }

void demo_model(benchmark::State& state, const std::string& policy) {
  const auto prompt = demo_prompt();
  Phases best{1e9, 1e9};
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i) best = better(best, run_demo(policy, prompt, nullptr));
  }
  state.counters["prompt_tokens_per_s"] = static_cast<double>(prompt.size()) / best.prompt;
  state.counters["tokens_per_s"] = (kNewTokens - 1) / best.decode;
}

// The same run with and without a recorder, in turn.
void recording(benchmark::State& state) {
  const auto prompt = demo_prompt();
  const fs::path path = fs::temp_directory_path() / ("kvroof-recording-" + std::to_string(getpid()) + ".kvt");
  Phases plain{1e9, 1e9}, recorded{1e9, 1e9};
  for (auto _ : state) {
    for (int i = 0; i < 2 * kRounds; ++i) {
      plain = better(plain, run_demo("full", prompt, nullptr));
      RecordedRun run;
      run.backend = "fast";
      run.policy = "full";
      run.weight_type = demo().type;
      run.kv_type = demo().type;
      run.requested_new_tokens = kNewTokens;
      run.prompts = {static_cast<std::uint32_t>(prompt.size())};
      fs::remove_all(path);
      TraceRecorder recorder(path, make_manifest(demo(), run));
      recorded = better(recorded, run_demo("full", prompt, &recorder));
      recorder.seal();
    }
  }
  fs::remove_all(path);
  state.counters["tokens_per_s"] = (kNewTokens - 1) / plain.decode;
  state.counters["recorded_tokens_per_s"] = (kNewTokens - 1) / recorded.decode;
  state.counters["overhead"] = recorded.decode / plain.decode - 1;
  state.counters["prompt_tokens_per_s"] = static_cast<double>(prompt.size()) / plain.prompt;
  state.counters["recorded_prompt_tokens_per_s"] = static_cast<double>(prompt.size()) / recorded.prompt;
  state.counters["prompt_overhead"] = recorded.prompt / plain.prompt - 1;
}

BENCHMARK_CAPTURE(prompt_product, bf16, DType::kBF16)->ArgName("threads")->Arg(1)->Iterations(1);
BENCHMARK_CAPTURE(prompt_product, f32, DType::kF32)->ArgName("threads")->Arg(1)->Iterations(1);
BENCHMARK_CAPTURE(demo_model, full, "full")->Iterations(1);
BENCHMARK_CAPTURE(demo_model, h2o, "h2o:budget=0.5")->Iterations(1);
BENCHMARK(recording)->Iterations(1);

}  // namespace
