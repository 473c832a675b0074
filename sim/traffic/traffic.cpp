#include "sim/traffic/traffic.hpp"

#include <algorithm>

namespace kvroof {
namespace {

using u64 = std::uint64_t;

constexpr u64 kActivationBytes = 4;  // activations are f32

// Elements of a weight read in one call.
u64 weight_elements(const ModelShape& s, const StepWork& work) {
  u64 elements = layers_parameters(s) + projection_parameters(s);
  elements += work.tokens * (s.embedding_width + (s.position_rows > 0 ? s.hidden : 0));
  const u64 outside = norm_vectors_outside_layers(s);
  const u64 norm = u64{s.hidden} * (s.norm_bias ? 2 : 1);
  if (work.logit_tokens > 0) return elements + outside + work.head_reads * head_parameters(s);
  return elements + outside - (s.final_norm ? norm : 0);
}

// Elements that one layer's operators read and write for one token, attention included.
u64 layer_activations(const ModelShape& s) {
  const u64 hidden = s.hidden;
  const u64 q = u64{s.heads} * s.head_dim;
  const u64 k = u64{s.kv_heads} * s.head_dim;
  const u64 v = u64{s.kv_heads} * s.v_head_dim;
  const u64 out = u64{s.heads} * s.v_head_dim;
  const bool rotary = s.position == PositionScheme::kRotaryHalfSplit || s.position == PositionScheme::kRotaryAdjacent;
  const u64 inward = s.mlp == MlpKind::kGated ? 2 : 1;
  u64 elements = s.norms_per_layer * 2 * hidden;
  elements += (hidden + q) + (hidden + k) + (hidden + v) + (out + hidden);
  elements += rotary ? 2 * (q + k) : 0;
  elements += q + out;
  elements += 2 * 3 * hidden;
  elements += inward * (hidden + s.ffn) + (inward + 1) * s.ffn + (s.ffn + hidden);
  return elements;
}

u64 activation_elements(const ModelShape& s, const StepWork& work) {
  const u64 q_and_out = u64{s.heads} * (u64{s.head_dim} + s.v_head_dim);
  if (attention_only(s)) return work.tokens * s.layers * q_and_out;
  u64 per_token = s.embedding_width + s.layers * layer_activations(s) + (s.embedding_norm ? 2 * s.hidden : 0);
  u64 per_logit = u64{s.hidden} + s.vocab + (s.final_norm ? 2 * s.hidden : 0);
  if (s.embedding_width != s.hidden) {
    // The projections from and to the narrower embedding are linears as well.
    per_token += s.embedding_width + s.hidden;
    per_logit += u64{s.embedding_width} * 2;
  }
  return work.tokens * per_token + work.logit_tokens * per_logit;
}

double linear_flops(const ModelShape& s, const StepWork& work) {
  if (attention_only(s)) return 0;
  const double hidden = s.hidden;
  const double q = double{1} * s.heads * s.head_dim;
  const double kv = double{1} * s.kv_heads * (s.head_dim + s.v_head_dim);
  const double out = double{1} * s.heads * s.v_head_dim;
  const double matrices = s.mlp == MlpKind::kGated ? 3 : 2;
  const double layer = hidden * (q + kv + out + matrices * s.ffn);
  const double projections = s.embedding_width == s.hidden ? 0 : hidden * s.embedding_width;
  const auto tokens = static_cast<double>(work.tokens);
  const auto logits = static_cast<double>(work.logit_tokens);
  return 2 *
         (tokens * (s.layers * layer + projections) + logits * (projections + double{1} * s.vocab * s.embedding_width));
}

// Every query head of the group that shares a storage head multiplies the row's k and adds its v.
double attention_flops(const ModelShape& s, const StepWork& work) {
  if (work.storage_heads == 0) return 0;
  const double group = static_cast<double>(s.heads) / work.storage_heads;
  return 2.0 * static_cast<double>(work.rows.attended) * group * (s.head_dim + s.v_head_dim);
}

}  // namespace

StepTraffic& StepTraffic::operator+=(const StepTraffic& other) {
  bytes += other.bytes;
  for (std::size_t i = 0; i < kKernelFamilies; ++i) flops[i] += other.flops[i];
  return *this;
}

StepTraffic step_traffic(const ModelShape& shape, TrafficTypes types, const StepWork& work) {
  const u64 row = row_bytes(shape, types.kv);
  const LayerCounts& rows = work.rows;
  StepTraffic t;
  if (!attention_only(shape)) t.bytes.add(Cause::kWeights, weight_elements(shape, work) * size_of(types.weights));
  t.bytes.add(Cause::kKvRead, (work.rows_read > 0 ? work.rows_read : rows.attended) * row);
  t.bytes.add(Cause::kKvWrite, rows.written * row);
  t.bytes.add(Cause::kCompaction, 2 * rows.moved * row);
  t.bytes.add(Cause::kScores, rows.state_read + rows.state_written);
  t.bytes.add(Cause::kActivations, activation_elements(shape, work) * kActivationBytes);
  t.flops = {Flops(linear_flops(shape, work)), Flops(attention_flops(shape, work)), Flops(rows.policy_flops)};
  return t;
}

LayerCounts sum_counts(std::span<const LayerCounts> cells) {
  LayerCounts sum;
  for (const LayerCounts& c : cells) {
    sum.attended += c.attended;
    sum.written += c.written;
    sum.moved += c.moved;
    sum.resident += c.resident;
    sum.allocated += c.allocated;
    sum.state_read += c.state_read;
    sum.state_written += c.state_written;
    sum.policy_flops += c.policy_flops;
  }
  return sum;
}

StepTraffic decode_traffic(const ModelShape& shape, TrafficTypes types, std::uint32_t storage_heads,
                           std::span<const std::span<const LayerCounts>> batch) {
  StepWork work;
  work.tokens = work.logit_tokens = batch.size();
  work.storage_heads = storage_heads;
  for (const auto& sequence : batch) {
    const LayerCounts sum = sum_counts(sequence);
    work.rows = sum_counts(std::array{work.rows, sum});
  }
  return step_traffic(shape, types, work);
}

u64 prefill_rows_read(std::uint32_t prompt, std::uint32_t query_block) {
  // Full blocks end at b, 2b, …, (n / b) · b; the rest, if any, ends at n.
  const u64 n = prompt;
  const u64 b = std::max(query_block, 1U);
  const u64 full = n / b;
  return b * full * (full + 1) / 2 + (n % b > 0 ? n : 0);
}

StepTraffic prefill_traffic(const ModelShape& shape, TrafficTypes types, std::uint32_t storage_heads,
                            std::uint32_t prompt, std::span<const LayerCounts> layers, std::uint32_t logit_block,
                            std::uint32_t query_block) {
  StepWork work{prompt, logit_block > 0 ? prompt : 1U, storage_heads, sum_counts(layers)};
  if (logit_block > 0) work.head_reads = (u64{prompt} + logit_block - 1) / logit_block;
  if (query_block > 1) work.rows_read = layers.size() * storage_heads * prefill_rows_read(prompt, query_block);
  return step_traffic(shape, types, work);
}

StepTraffic residency_traffic(const ModelShape& shape, TrafficTypes types, const Residency& residency,
                              std::uint32_t step, std::uint32_t query_block) {
  const std::span<const LayerCounts> layers(&residency.at(step, 0), residency.layers);
  const std::uint32_t heads = residency.storage_heads;
  if (step == 0) return prefill_traffic(shape, types, heads, residency.prompt, layers, 0, query_block);
  return step_traffic(shape, types, {1, 1, heads, sum_counts(layers)});
}

}  // namespace kvroof
