#include "sim/traffic/traffic.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "sim/traffic/elements.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

constexpr u64 kActivationBytes = 4;  // activations are f32

// How often experts are chosen beside the mean, from the least to the most popular; as many of each.
using Popularity = std::array<double, 12>;

Popularity popularity_of_experts() {
  constexpr double kMostBesideLeast = 8;
  Popularity p{};
  const auto kinds = static_cast<double>(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = std::pow(kMostBesideLeast, (static_cast<double>(i) + 0.5) / kinds);
  const double mean = std::accumulate(p.begin(), p.end(), 0.0) / kinds;
  for (double& x : p) x /= mean;
  return p;
}

// Elements of the weights read in one call, but for those that stay in 32 bits.
u64 weight_elements(const ModelShape& s, const StepWork& work) {
  const u64 experts = work.experts.value_or(static_cast<u64>(std::llround(expected_experts(s, work.tokens))));
  u64 elements = layers_parameters(s) - routed_parameters(s) - exact_parameters(s);
  elements += experts * expert_parameters(s);
  elements += work.tokens * embedding_row(s);
  const u64 projection = projection_parameters(s) / 2;  // one way
  const u64 outside = norm_vectors_outside_layers(s);
  const u64 norm = u64{s.hidden} * (s.norm_bias ? 2 : 1);
  if (work.logit_tokens > 0) return elements + 2 * projection + outside + work.head_reads * head_parameters(s);
  return elements + projection + outside - (s.final_norm ? norm : 0);
}

u64 activation_elements(const ModelShape& s, const StepWork& work) {
  if (attention_only(s)) return work.tokens * s.layers * s.heads * (u64{s.head_dim} + s.v_head_dim);
  return work.tokens * token_elements(s).moved + work.logit_tokens * logit_elements(s).moved;
}

double linear_flops(const ModelShape& s, const StepWork& work) {
  if (attention_only(s)) return 0;
  const auto products = [](u64 times, const Elements& e) {
    return static_cast<double>(times) * static_cast<double>(e.products);
  };
  return 2 * (products(work.tokens, token_elements(s)) + products(work.logit_tokens, logit_elements(s)));
}

// Each multiplies the row's k and adds its v.
double attention_flops(const ModelShape& s, const StepWork& work) {
  return work.storage_heads == 0 ? 0 : 2.0 * query_rows(s, work.rows, work.storage_heads) * (s.head_dim + s.v_head_dim);
}

void add_cache_bytes(StepTraffic& t, const ModelShape& s, KvType kv, const StepWork& work) {
  const LayerCounts& rows = work.rows;
  const u64 rows_read = work.rows_read > 0 ? work.rows_read : rows.attended;
  if (!kv.by_age()) {
    const KvBytes row = kv_row(s, kv);
    t.kv_read = row * rows_read;
    t.bytes.add(Cause::kKvWrite, held_bytes(s, kv, rows.written, rows.keyed_written).total());
    t.bytes.add(Cause::kCompaction, 2 * held_bytes(s, kv, rows.moved, rows.keyed_moved).total());
  } else {
    // Every row is written in float16 first, and a prompt is attended to so.
    const u64 plain = row_bytes(s, kv.rows());
    t.kv_read = rows.attended_aged == AgedRows{} ? KvBytes{0, 0, rows_read * plain}
                                                 : aged_bytes(kv, s.head_dim, stored_v_width(s), rows.attended_aged);
    t.bytes.add(Cause::kKvWrite, rows.written * plain + index_keys(s, rows.written, rows.keyed_written).total());
    t.bytes.add(Cause::kCompaction, aged_bytes(kv, s.head_dim, stored_v_width(s), rows.converted).total());
  }
  const u64 keys_read = work.keys_read > 0 ? work.keys_read : rows.indexed;
  const KvBytes keys = index_keys(s, keys_read, keys_read);
  const double choosing = s.compressed ? 1 : static_cast<double>(s.index.layers) / s.layers;
  t.index_bytes = keys.total();
  t.index_flops = Flops(static_cast<double>(rows.indexed) * choosing * s.index.operations());
  t.kv_read += keys;
  t.bytes.add(Cause::kKvRead, t.kv_read.total());
}

}  // namespace

KvBytes kv_row(const ModelShape& s, KvType kv) { return kv.row(s.head_dim) + kv.row(stored_v_width(s)); }

KvBytes index_keys(const ModelShape& s, u64 rows, u64 keyed) {
  if (s.compressed) return s.index ? s.index.key() * keyed : KvBytes{};
  return s.index.keys(rows, s.layers);
}

KvBytes held_bytes(const ModelShape& s, KvType kv, u64 rows, u64 keyed) {
  return kv_row(s, kv) * rows + index_keys(s, rows, keyed);
}

KvBytes resident_bytes(const ModelShape& s, KvType kv, const LayerCounts& rows) {
  if (!kv.by_age()) return held_bytes(s, kv, rows.resident, rows.keyed_resident);
  return aged_bytes(kv, s.head_dim, stored_v_width(s), rows.resident_aged) +
         index_keys(s, rows.resident, rows.keyed_resident);
}

double other_group(const ModelShape& s, std::uint32_t storage_heads) {
  return storage_heads == s.kv_heads ? static_cast<double>(s.other.heads) / s.other.kv_heads : 1;
}

double query_rows(const ModelShape& s, const LayerCounts& rows, std::uint32_t storage_heads) {
  const u64 others = rows.attended_other;
  const double group = static_cast<double>(s.heads) / storage_heads;
  const double queries = static_cast<double>(rows.attended - others) * group;
  return others == 0 ? queries : queries + static_cast<double>(others) * other_group(s, storage_heads);
}

double expected_experts(const ModelShape& s, std::uint64_t tokens) {
  if (s.expert_layers() == 0 || tokens == 0) return 0;
  const double chosen = s.experts_per_token, layers = static_cast<double>(s.expert_layers());
  if (tokens == 1) return layers * chosen;
  static const Popularity popularity = popularity_of_experts();
  double missed = 0;
  for (const double p : popularity) {
    missed += std::pow(1 - std::min(1.0, p * chosen / s.experts), static_cast<double>(tokens));
  }
  return layers * std::max(chosen, s.experts * (1 - missed / static_cast<double>(popularity.size())));
}

u64 widest_mlp(const ModelShape& s) {
  const u64 experts = u64{s.experts_per_token} * s.expert_ffn + s.shared_expert_ffn;
  return std::max(s.expert_layers() > 0 ? experts : 0,
                  s.expert_layers() < s.mlps() ? u64{std::max(s.ffn, s.sharing_ffn)} : 0);
}

StepTraffic& StepTraffic::operator+=(const StepTraffic& other) {
  bytes += other.bytes;
  kv_read += other.kv_read;
  index_bytes += other.index_bytes;
  index_flops += other.index_flops;
  state_bytes += other.state_bytes;
  state_flops += other.state_flops;
  for (std::size_t i = 0; i < kKernelFamilies; ++i) flops[i] += other.flops[i];
  return *this;
}

StepWork prompt_work(u64 prompts, u64 tokens, std::uint32_t storage_heads, const LayerCounts& rows) {
  StepWork work{tokens, prompts, storage_heads, rows};
  work.recurrent_writes = std::max(prompts, (tokens + kStateChunk - 1) / kStateChunk);
  work.recurrent_reads = work.recurrent_writes - prompts;  // a prompt's first piece starts from nothing
  return work;
}

// The rows of a convolution pass with the matrices.
static void add_states(StepTraffic& t, const ModelShape& s, TrafficTypes types, const StepWork& work) {
  if (s.state.layers == 0) return;
  t.state_bytes = (work.recurrent_reads + work.recurrent_writes) * state_bytes(s, types.weights).value;
  t.state_flops = Flops(static_cast<double>(work.tokens * s.state.layers) *
                        static_cast<double>(state_operations(s.state, s.hidden)));
}

StepTraffic step_traffic(const ModelShape& shape, TrafficTypes types, const StepWork& work) {
  const LayerCounts& rows = work.rows;
  StepTraffic t;
  if (!attention_only(shape)) {
    t.bytes.add(Cause::kWeights, weight_elements(shape, work) * size_of(types.weights));
    t.bytes.add(Cause::kWeights, exact_parameters(shape) * sizeof(float));
  }
  add_cache_bytes(t, shape, types.kv, work);
  add_states(t, shape, types, work);
  t.bytes.add(Cause::kScores, rows.state_read + rows.state_written + types.kv.scored_bytes(rows.scored));
  t.bytes.add(Cause::kActivations, activation_elements(shape, work) * kActivationBytes);
  t.flops = {Flops(linear_flops(shape, work)), Flops(attention_flops(shape, work)), Flops(rows.policy_flops.total())};
  return t;
}

StepTraffic decode_traffic(const ModelShape& shape, TrafficTypes types, std::uint32_t storage_heads,
                           std::span<const std::span<const LayerCounts>> batch, std::optional<u64> experts) {
  StepWork work;
  work.tokens = work.logit_tokens = batch.size();
  work.storage_heads = storage_heads;
  work.experts = experts;
  work.recurrent_reads = work.recurrent_writes = batch.size();
  for (const auto& sequence : batch) work.rows += sum_counts(sequence);
  return step_traffic(shape, types, work);
}

u64 prefill_rows_read(std::uint32_t prompt, std::uint32_t query_block, std::uint32_t window) {
  // Full blocks end at b, 2b, …, (n / b) · b; the rest, if any, ends at n.
  const u64 n = prompt;
  const u64 b = std::max(query_block, 1U);
  const u64 full = n / b;
  const u64 causal = b * full * (full + 1) / 2 + (n % b > 0 ? n : 0);
  if (window == 0) return causal;
  // A block that starts at j · b ≥ w does without its first j · b + 1 − w rows.
  const u64 blocks = (n + b - 1) / b;
  const u64 first = (u64{window} + b - 1) / b;
  if (first >= blocks) return causal;
  const u64 later = blocks - first;
  return causal - (b * (later * (first + blocks - 1) / 2) - later * (u64{window} - 1));
}

StepTraffic prefill_traffic(const ModelShape& shape, TrafficTypes types, std::uint32_t storage_heads,
                            std::uint32_t prompt, std::span<const LayerCounts> layers, std::uint32_t logit_block,
                            std::uint32_t query_block, std::optional<u64> experts) {
  StepWork work = prompt_work(1, prompt, storage_heads, sum_counts(layers));
  if (logit_block > 0) work.logit_tokens = prompt;
  work.experts = experts;
  if (query_block > 1) {
    for (std::uint32_t layer = 0; layer < layers.size(); ++layer) {
      const u64 heads = shape.is_other(layer) ? storage_heads / shape.kv_heads * u64{shape.rows_of_token(layer)}
                                              : storage_heads;
      work.rows_read += heads * prefill_rows_read(prompt, query_block, shape.window(layer));
    }
  }
  if (logit_block > 0) work.head_reads = (u64{prompt} + logit_block - 1) / logit_block;
  return step_traffic(shape, types, work);
}

StepTraffic residency_traffic(const ModelShape& shape, TrafficTypes types, const Residency& residency,
                              std::uint32_t step, std::uint32_t query_block) {
  const std::span<const LayerCounts> layers(&residency.at(step, 0), residency.layers);
  const std::uint32_t heads = residency.storage_heads;
  if (step == 0) return prefill_traffic(shape, types, heads, residency.prompt, layers, 0, query_block);
  StepWork work{1, 1, heads, sum_counts(layers)};
  work.recurrent_reads = work.recurrent_writes = 1;
  return step_traffic(shape, types, work);
}

}  // namespace kvroof
