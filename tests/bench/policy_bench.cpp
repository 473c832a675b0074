// Speed of what replay and engine spend on policies: scores and victims from logits, and the way from q and k to
// logits.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/gumbel.hpp"
#include "sim/policy/layer_policy.hpp"

namespace {

using namespace kvroof;

constexpr std::uint32_t kHeads = 8;
constexpr std::uint32_t kPrompt = 2048;
constexpr std::uint32_t kDecode = 512;

// Logits of the decode rows, recorded over all positions: row t of a head has t + 1 elements.
std::vector<float> random_logits() {
  std::vector<float> logits(std::size_t{kHeads} * kDecode * (kPrompt + kDecode));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] =
        4 * uniform_draw({.layer = static_cast<std::uint32_t>(i >> 20), .position = static_cast<std::uint32_t>(i)});
  }
  return logits;
}

// Memory that all points share, as they do in a replay.
struct Scratch {
  std::vector<float> logits = std::vector<float>(kPrompt + kDecode);
  std::vector<float> weights = std::vector<float>(kPrompt + kDecode);
};

// One policy under one budget, as a replay steps it: gather the resident logits, softmax, observe, evict.
class Point {
 public:
  explicit Point(const PolicySpec& spec)
      : policy_(spec, {.prompt = kPrompt, .requested_new_tokens = kDecode}, kHeads, kHeads) {
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      for (std::uint32_t t = 0; t < kPrompt; ++t) policy_.admit(HeadId(h), TokenPos(t));
    }
    policy_.finish_row(TokenPos(kPrompt - 1));
  }

  // The row of `head` at position t; returns the slots that it had.
  std::size_t row(HeadId head, std::uint32_t t, std::span<const float> recorded, Scratch& scratch) {
    policy_.admit(head, TokenPos(t));
    const auto positions = policy_.positions(head);
    const std::size_t slots = positions.size();
    gather(recorded, positions, std::span(scratch.logits).first(slots));
    AttentionRows rows{policy_.step_of(TokenPos(t)), TokenPos(t),           positions, 1,
                       scratch.logits.data(),        scratch.weights.data()};
    if (policy_.traits().needs_weights) softmax(rows.logits_of(0), std::span(scratch.weights).first(slots));
    policy_.observe(head, rows);
    return slots;
  }
  void finish(std::uint32_t t) { policy_.finish_row(TokenPos(t)); }

 private:
  LayerPolicy policy_;
};

// An item is one resident slot of one row of one query head under one point.
void scores_and_victims(benchmark::State& state, const std::string& policy) {
  const std::vector<float> logits = random_logits();
  Scratch scratch;
  std::int64_t items = 0;
  for (auto _ : state) {
    state.PauseTiming();
    std::vector<Point> points;
    for (const char* budget : {"0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8"}) {
      points.emplace_back(cross_budgets(parse_policies(policy), {parse_budget(budget).or_throw(budget)}).front());
    }
    state.ResumeTiming();
    for (std::uint32_t i = 0; i < kDecode; ++i) {
      const std::uint32_t t = kPrompt + i;
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        const std::span<const float> recorded(logits.data() + (std::size_t{i} * kHeads + h) * (kPrompt + kDecode),
                                              t + 1);
        for (Point& point : points) items += static_cast<std::int64_t>(point.row(HeadId(h), t, recorded, scratch));
      }
      for (Point& point : points) point.finish(t);
    }
  }
  state.SetItemsProcessed(items);
}
BENCHMARK_CAPTURE(scores_and_victims, h2o_8_points, std::string("h2o"))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(scores_and_victims, keyformer_8_points, std::string("keyformer"))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(scores_and_victims, keyformer_noise_query_8_points, std::string("keyformer:noise=query"))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(scores_and_victims, scissorhands_8_points, std::string("scissorhands"))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(scores_and_victims, random_8_points, std::string("random"))->Unit(benchmark::kMillisecond);

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
  std::vector<float> logits(static_cast<std::size_t>(state.range(0)), 0.5F);
  std::vector<float> weights(logits.size());
  for (auto _ : state) {
    benchmark::DoNotOptimize(softmax(logits, weights));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(softmax_of_a_row)->Arg(256)->Arg(2048);

}  // namespace
