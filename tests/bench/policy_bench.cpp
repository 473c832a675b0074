// Speed of what replay and engine spend on policies: scores and victims from logits, and the way from q and k to
// logits.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/gumbel.hpp"
#include "sim/replay/exact_rows.hpp"
#include "sim/replay/decode_tasks.hpp"
#include "sim/replay/point_layer.hpp"
#include "sim/replay/prompt_sharing.hpp"

namespace {

using namespace kvroof;

constexpr std::uint32_t kHeads = 8;
constexpr std::uint32_t kPrompt = 2048;
constexpr std::uint32_t kDecode = 512;
constexpr std::uint32_t kTokens = kPrompt + kDecode;
constexpr std::uint32_t kBlock = 8;   // rows of one pass
constexpr std::uint32_t kPoints = 16;  // budgets of 5, 10 … 80 % of the prompt

// One layer, whose logits are in memory: those of one block of rows, which all blocks have.
struct Layer {
  Layer() {
    shape.query_heads = shape.kv_heads = kHeads;
    shape.k_width = shape.v_width = 1;
    keys_values.tokens = kTokens;
    keys_values.k.resize(std::size_t{kTokens} * kHeads * sizeof(float));
    keys_values.v = keys_values.k;
    logits.resize(std::size_t{kBlock} * kHeads * kTokens);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = 4 * uniform_draw({.layer = static_cast<std::uint32_t>(i >> 20),
                                    .position = static_cast<std::uint32_t>(i)});
    }
  }
  TraceLayer shape;
  LayerKeysValues keys_values;
  std::vector<float> logits;  // [rows][heads][position + 1]
};

// Sixteen points of one policy, or of several in turn, on that layer, their prompt behind them, stepped as a replay
// steps them.
class Points {
 public:
  Points(const std::string& policy, const Layer& layer, ThreadPool& pool)
      : layer_(layer),
        pool_(pool),
        rows_(pool),
        noisy_(pool),
        tensors_{&layer.shape, DType::kF32, &layer.keys_values, {}} {
    rows_.start_layer(layer.shape, DType::kF32, layer.keys_values, kBlock);
    PolicyContext context;
    context.prompt = kPrompt;
    context.requested_new_tokens = kDecode;
    Residency head;
    head.prompt = kPrompt;
    head.steps = kDecode;
    head.layers = 1;
    logs_.assign(kPoints, ResidencyLog(head));
    for (std::uint32_t i = 0; i < kPoints; ++i) {
      const std::string budget = std::to_string(kPrompt * (i + 1) / 20);
      const auto specs = cross_budgets(parse_policies(policy), {parse_budget(budget).or_throw(budget)});
      specs_.push_back(specs[i % specs.size()]);
    }
    for (const PolicySpec& spec : specs_) noisy_.add(policy_info(spec.name).traits(spec));
    noisy_.start_layer(context, layer.shape, kTokens, kBlock);
    for (std::uint32_t i = 0; i < kPoints; ++i) {
      points_.push_back(
          std::make_unique<PointLayer>(specs_[i], context, tensors_, MeasureOptions{false, false}, scratch_[i]));
      points_.back()->look_at(noisy_.of(points_.back()->traits()));
      weighs_ = weighs_ || points_.back()->needs().decode_weights;
      records_[i].wants_kept.assign(kBlock, false);
    }
    std::vector<PointLayer*> looking;
    PromptSharing sharing;
    for (const auto& point : points_) {
      if (sharing.add(specs_, *point)) looking.push_back(point.get());
    }
    for (std::uint32_t first = 0; first < kPrompt; first += kBlock) {
      rows_.compute_from_logits(first, kBlock, layer_.logits, std::size_t{kHeads} * kTokens, {.weights = true});
      pool_.parallel_for(looking.size() * kHeads, [&](std::size_t task) {
        looking[task / kHeads]->observe_prompt(rows_, first, kBlock, HeadId(static_cast<std::uint32_t>(task % kHeads)));
      });
    }
    sharing.share(points_, pool_);
    for (std::uint32_t i = 0; i < kPoints; ++i) points_[i]->finish_prompt(logs_[i], 0);
  }

  void decode() {
    for (std::uint32_t first = kPrompt; first < kTokens; first += kBlock) {
      rows_.compute_from_logits(first, kBlock, layer_.logits, std::size_t{kHeads} * kTokens, {.exponentials = weighs_});
      noisy_.compute(rows_);
      for (std::uint32_t i = 0; i < kPoints; ++i) points_[i]->start_block(&rows_, first, kBlock, records_[i]);
      tasks_.run(points_, pool_);
      for (std::uint32_t i = 0; i < kPoints; ++i) points_[i]->end_block(logs_[i], 0);
    }
  }

  // Slots of all decode rows.
  [[nodiscard]] std::int64_t attended() const {
    std::uint64_t sum = 0;
    for (const ResidencyLog& log : logs_) {
      const Residency residency = log.expand();
      for (std::uint32_t step = 1; step <= kDecode; ++step) sum += residency.at(step, 0).attended;
    }
    return static_cast<std::int64_t>(sum);
  }

 private:
  const Layer& layer_;
  ThreadPool& pool_;
  ExactRows rows_;
  NoisyKinds noisy_;
  LayerTensors tensors_;
  std::vector<PolicySpec> specs_;
  std::array<PointScratch, kPoints> scratch_;
  std::array<BlockRecord, kPoints> records_;
  std::vector<ResidencyLog> logs_;
  std::vector<std::unique_ptr<PointLayer>> points_;
  DecodeTasks tasks_;
  bool weighs_ = false;  // some point asks for the exponentials of the logits
};

// An item is one resident slot of one row of one query head under one point.
void scores_and_victims(benchmark::State& state, const std::string& policy) {
  const Layer layer;
  ThreadPool pool(static_cast<unsigned>(state.range(0)));
  std::int64_t items = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto points = std::make_unique<Points>(policy, layer, pool);
    state.ResumeTiming();
    points->decode();
    state.PauseTiming();
    items += points->attended();
    points.reset();
    state.ResumeTiming();
  }
  state.SetItemsProcessed(items);
}

// The rate is one core's: of the processor time of all threads, their waiting for each other included.
void sixteen_points(benchmark::internal::Benchmark* b) {
  b->ArgName("threads")->Arg(1)->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(scores_and_victims, h2o_16_points, std::string("h2o"))->Apply(sixteen_points)->Arg(2);
BENCHMARK_CAPTURE(scores_and_victims, mix_16_points, std::string("h2o,keyformer,tova,scissorhands,window"))
    ->Apply(sixteen_points);
BENCHMARK_CAPTURE(scores_and_victims, keyformer_16_points, std::string("keyformer"))->Apply(sixteen_points);
BENCHMARK_CAPTURE(scores_and_victims, keyformer_noise_query_16_points, std::string("keyformer:noise=query"))
    ->Apply(sixteen_points);
BENCHMARK_CAPTURE(scores_and_victims, scissorhands_16_points, std::string("scissorhands"))->Apply(sixteen_points);
BENCHMARK_CAPTURE(scores_and_victims, random_16_points, std::string("random"))->Apply(sixteen_points);

// An item is one multiplication and addition. 256 rows stay in the second-level cache.
constexpr std::size_t kRows = 256;

void logits_from_q_and_k(benchmark::State& state, DType type) {
  const auto width = static_cast<std::size_t>(state.range(0));
  const std::vector<float> q(width, 0.5F);
  const std::vector<std::byte> memory(kRows * width * size_of(type));
  const RowsView keys{memory.data(), type, width, width, kRows};
  std::vector<float> logits(kRows);
  for (auto _ : state) {
    compute_logits(q, keys, {.scale = 0.125F}, logits);
    benchmark::DoNotOptimize(logits.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kRows * width));
}
BENCHMARK_CAPTURE(logits_from_q_and_k, f32, DType::kF32)->Arg(64)->Arg(128);
BENCHMARK_CAPTURE(logits_from_q_and_k, bf16, DType::kBF16)->Arg(64)->Arg(128);
BENCHMARK_CAPTURE(logits_from_q_and_k, f16, DType::kF16)->Arg(64)->Arg(128);

void output_from_weights_and_v(benchmark::State& state, DType type) {
  const auto width = static_cast<std::size_t>(state.range(0));
  const std::vector<float> weights(kRows, 0.5F);
  const std::vector<std::byte> memory(kRows * width * size_of(type));
  const RowsView values{memory.data(), type, width, width, kRows};
  std::vector<float> out(width);
  for (auto _ : state) {
    weighted_sum(weights, values, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kRows * width));
}
BENCHMARK_CAPTURE(output_from_weights_and_v, f32, DType::kF32)->Arg(64)->Arg(128);
BENCHMARK_CAPTURE(output_from_weights_and_v, bf16, DType::kBF16)->Arg(64)->Arg(128);

void softmax_of_a_row(benchmark::State& state) {
  std::vector<float> logits(static_cast<std::size_t>(state.range(0)));
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
  std::vector<float> weights(logits.size());
  for (auto _ : state) {
    softmax(logits, weights);
    benchmark::DoNotOptimize(weights.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(softmax_of_a_row)->Arg(256)->Arg(2048);

}  // namespace
