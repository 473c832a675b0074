// Whole decode steps of models that no cache holds, beside reading as many bytes: how near the engine comes to memory.
//
// Weights are constants in the shapes of today's families; what a step has to read is what the engine counts, weights
// and k and v. A step and a read of uncached memory run in turn, and the best of each counts.
#include <benchmark/benchmark.h>

#include "kernels/cpu/bandwidth.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "kernels/cpu/fast_ops.hpp"

namespace {

using namespace kvroof;

constexpr int kSteps = 24;
constexpr std::uint32_t kPrompt = 32;
constexpr std::uint32_t kHidden = 2048;

Weight constant(DType type, std::size_t rows, std::size_t cols) {
  const std::vector<float> row(cols, 0.001F);
  Weight w{type, rows, cols, AlignedBytes(rows * cols * size_of(type))};
  for (std::size_t r = 0; r < rows; ++r) convert_from_float(type, row, w.data.data() + r * cols * size_of(type));
  return w;
}

Linear linear(DType type, std::size_t out, std::size_t in) { return {constant(type, out, in), {}}; }

Norm norm(DType type, std::size_t size) { return {constant(type, 1, size), {}}; }

Mlp mlp(DType type, std::size_t ffn) {
  return {linear(type, ffn, kHidden), linear(type, ffn, kHidden), linear(type, kHidden, ffn)};
}

ModelShape common_shape(DType type) {
  ModelShape s;
  s.hidden = s.embedding_width = kHidden;
  s.heads = 16;
  s.kv_heads = 4;
  s.head_dim = s.v_head_dim = 128;
  s.ffn = 8192;
  s.vocab = 32000;
  s.max_positions = 4096;
  s.tied_head = true;
  s.weight_type = type;
  return s;
}

void add_attention(DType type, const ModelShape& s, LayerWeights& w) {
  w.attention_norm = norm(type, kHidden);
  w.mlp_norm = norm(type, kHidden);
  w.o = linear(type, kHidden, s.heads * (s.latent() ? s.latent_v_dim : s.v_head_dim));
  if (!s.latent()) {
    w.q = linear(type, s.heads * s.head_dim, kHidden);
    w.k = linear(type, s.kv_heads * s.head_dim, kHidden);
    w.v = linear(type, s.kv_heads * s.v_head_dim, kHidden);
    return;
  }
  w.latent.q_up = constant(type, s.heads * (s.latent_nope_dim + s.latent_rope_dim), kHidden);
  w.latent.kv_down = linear(type, s.latent_rank + s.latent_rope_dim, kHidden);
  w.latent.kv_norm = norm(type, s.latent_rank);
  w.latent.k_up = constant(type, s.heads * s.latent_rank, s.latent_nope_dim);
  w.latent.v_up = constant(type, s.heads * s.latent_v_dim, s.latent_rank);
}

Model make_model(DType type, ModelShape shape, std::uint32_t layers) {
  Model model;
  shape.layers = layers;
  model.type = type;
  model.config.options.rotary = {
      plain_rotary(RotaryStyle::kHalfSplit, shape.latent() ? shape.latent_rope_dim : shape.head_dim, 10000.0)};
  model.config.options.layers.assign(layers, {default_attention_scale(128), 0, 0});
  model.weights.embedding = constant(type, shape.vocab, kHidden);
  model.weights.final_norm = norm(type, kHidden);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    LayerWeights& w = model.weights.layers.emplace_back();
    add_attention(type, shape, w);
    if (shape.experts == 0) {
      w.mlp = mlp(type, shape.ffn);
      continue;
    }
    w.experts.router.matrix = constant(type, shape.experts, kHidden);
    for (std::uint32_t e = 0; e < shape.experts; ++e) w.experts.routed.push_back(mlp(type, shape.expert_ffn));
  }
  model.config.shape = shape;
  return model;
}

Model dense_model(DType type) { return make_model(type, common_shape(type), 4); }

// Four of eight experts a token.
Model experts_model(DType type) {
  ModelShape s = common_shape(type);
  s.experts = 8;
  s.experts_per_token = 4;
  s.expert_ffn = 1024;
  return make_model(type, s, 5);
}

Model latent_model(DType type) {
  ModelShape s = common_shape(type);
  s.kv_heads = 1;
  s.latent_rank = s.v_head_dim = 512;
  s.latent_rope_dim = 64;
  s.head_dim = 576;
  s.latent_nope_dim = s.latent_v_dim = 128;
  return make_model(type, s, 4);
}

void decode_step(benchmark::State& state, Model (*make)(DType), DType type) {
  const auto threads = static_cast<unsigned>(state.range(0));
  const Model model = make(type);
  CpuBackend backend(model, make_fast_ops(threads), {parse_policies("full").at(0), 0, type});
  std::vector<float> logits(model.config.shape.vocab);
  const std::vector<std::int64_t> prompt(kPrompt, 1);
  backend.prefill(0, prompt, kSteps * 2, logits, {});
  MemoryProbe probe(threads, uncached_bytes());
  Timing step, read;
  int steps = 0;
  (void)backend.take_counters();
  for (auto _ : state) {
    for (int i = 0; i < kSteps; ++i, ++steps) {
      const DecodeEntry entry{0, 1};
      read.run([&] { benchmark::DoNotOptimize(probe.read()); });
      step.run([&] { backend.decode({&entry, 1}, logits); });
    }
  }
  const ByteCounters counted = backend.take_counters();
  const double bytes = static_cast<double>(counted[Cause::kWeights] + counted[Cause::kKvRead]) / steps;
  const double limit = static_cast<double>(probe.bytes_read()) / read.best();
  state.counters["tokens_per_s"] = 1 / step.best();
  state.counters["bytes_per_s"] = bytes / step.best();
  state.counters["limit_bytes_per_s"] = limit;
  state.counters["share_of_limit"] = bytes / step.best() / limit;
}

void threads_only(benchmark::internal::Benchmark* b) {
  b->ArgName("threads")->Iterations(1)->Unit(benchmark::kMillisecond);
  b->Arg(static_cast<std::int64_t>(default_threads()));
}

BENCHMARK_CAPTURE(decode_step, dense_bf16, dense_model, DType::kBF16)->Apply(threads_only);
BENCHMARK_CAPTURE(decode_step, dense_f16, dense_model, DType::kF16)->Apply(threads_only);
BENCHMARK_CAPTURE(decode_step, dense_f32, dense_model, DType::kF32)->Apply(threads_only);
BENCHMARK_CAPTURE(decode_step, experts_bf16, experts_model, DType::kBF16)->Apply(threads_only);
BENCHMARK_CAPTURE(decode_step, latent_bf16, latent_model, DType::kBF16)->Apply(threads_only);

}  // namespace
