// What a batch needs in memory, and the largest that fits.
#include <algorithm>
#include <cmath>

#include "sim/cost/cost.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Elements alive at once for one token: the residual, or its streams, and its norm, and the widest of attention and MLP
// (of a layer of experts, those that the token chose; of a layer with a state, what goes into it and what comes out).
u64 live_elements(const ModelShape& s, std::uint32_t devices = 1) {
  u64 attention = 0;
  for (const AttentionKind& a : attention_kinds(s)) {
    const u64 gate = s.attention_gate ? u64{a.heads} * a.head_dim : 0;
    const u64 q_and_out = u64{a.heads} * (u64{a.head_dim} + a.v_head_dim) + gate;
    const u64 k_and_v = a.kv_heads * (s.latent() || s.compressed ? s.row_width() : u64{a.head_dim} + a.v_head_dim);
    attention = std::max(attention, q_and_out + k_and_v);
  }
  const u64 mlp = (s.mlp == MlpKind::kGated ? 3 : 2) * widest_mlp(s);
  const StateRows state = state_rows(s.state, s.hidden);
  const u64 residual = (1 + std::max(s.residual_streams, 1U)) * u64{s.hidden};
  return residual + (std::max({attention, mlp, state.widest + state.out}) + devices - 1) / devices;
}

// Exact below 2^53; more than an exabyte is one exabyte, so that sums cannot wrap around.
Bytes bytes_of(double bytes) { return Bytes(static_cast<u64>(std::llround(std::min(bytes, 1e18)))); }

// Of a prompt's rows those that the windows beside compressed rows have let go by its end: a cache of their own kind,
// in which no buffer keeps them.
u64 hidden_rows(const ModelShape& shape, u64 prompt) {
  u64 rows = 0;
  for (std::uint32_t layer = 0; shape.compressed && layer < shape.layers; ++layer) {
    rows += prompt - std::min<u64>(prompt, shape.window(layer));
  }
  return rows;
}

}  // namespace

// Drafted rows lie in the cache beside those that stay, until the step that verifies them has ended.
KvBytes CostModel::allocated(const ResidencySummary& residency) const {
  const u64 rows = shape_.other.layers.empty() && shape_.sharing_layers == 0
                       ? u64{residency.storage_heads} * residency.layers
                       : rows_of_token(shape_) * std::max(residency.storage_heads / shape_.kv_heads, 1U);
  const u64 drafted = rows * (step_tokens().passed - 1);
  KvBytes bytes = allocated_for_tokens(residency);
  if (drafted == 0) return bytes;
  if (!types_.kv.by_age()) return bytes + held_bytes(shape_, types_.kv, drafted);
  bytes += KvBytes{0, 0, held_bytes(shape_, types_.kv.rows(), drafted).total()};
  return bytes;
}

KvBytes CostModel::allocated_for_tokens(const ResidencySummary& residency) const {
  if (state_pages()) return kv_row(shape_, types_.kv) * rows_in_state_pages(residency, residency.peak_rows);
  // Windows beside compressed rows have a cache of their own kind, which no engine is known to keep whole.
  if (!engine_.keeps_hidden_rows || residency.evicts || shape_.layer_windows.empty() || shape_.compressed) {
    return residency.allocated_bytes(shape_, types_.kv, engine_.paged_cache);
  }
  const u64 tokens = u64{residency.prompt} + residency.steps;
  if (!types_.kv.by_age()) {
    return held_bytes(shape_, types_.kv, rows_of_token(shape_) * (engine_.paged_cache ? in_pages(tokens) : tokens));
  }
  ModelShape whole = shape_;
  whole.layer_windows.clear();
  return full_attention_summary(whole, residency.prompt, residency.steps)
      .allocated_bytes(whole, types_.kv, engine_.paged_cache);
}

MemoryLedger CostModel::ledger(const ResidencySummary& residency, std::uint64_t batch) const {
  const auto sequences = static_cast<double>(of_a_group(batch));
  const double share = kv_share(residency.storage_heads), held = share * stage_share_;  // of all rows, on this device
  const KvType kv = types_.kv;
  const KvBytes allocated = this->allocated(residency);
  const double rows = held * static_cast<double>(residency.peak_rows) * sequences;
  const auto live = static_cast<double>(live_elements(shape_, deployment_.tensor_parallel));
  MemoryLedger m;
  m.weights = weights_;
  const auto of_batch = [&](u64 bytes) { return bytes_of(held * static_cast<double>(bytes) * sequences); };
  m.kv_allocated = of_batch(allocated.total());
  if (kv.quantised()) m.kv_scales = of_batch(allocated.scales);  // keys of an index have some beside any cache
  m.kv_residual = of_batch(allocated.residual);
  const auto bounds = static_cast<double>(kv.scored_bytes(residency.peak_page_metadata));
  m.policy_state = bytes_of(rows * static_cast<double>(residency.state_bytes_per_row) + held * bounds * sequences);
  const double once = held_compressors(), others = allocated_states() - once;
  m.states = bytes_of((others * step_tokens().passed + once) * sequences);
  const double decode = sequences * step_tokens().passed * (live + shape_.vocab);
  // Sequences are prefilled one after the other, long ones in chunks, unless the engine takes all prompts as one.
  const double prompt = residency.prompt;
  double prefill = std::min(prompt, engine_.prompt_chunk) * live + shape_.vocab;
  if (!engine_.fused_attention) prefill = 0;
  if (engine_.prompts_together) prefill = sequences * (prompt * live + shape_.vocab);
  m.activations = bytes_of(engine_.activation_bytes * std::max(decode, prefill));
  // A prompt lies in a buffer of its own before it is packed or, with a residual window, quantised.
  const KvType buffer_type = kv.by_age() ? KvType(kv.rows()) : kv;
  const double row = static_cast<double>(held_bytes(shape_, buffer_type, shape_.layers).total()) / shape_.layers;
  const bool buffered = residency.evicts || kv.by_age();
  // Pages that rows leave are free at once: where a prompt is evicted from in them, what stays is not there twice.
  const bool in_place = engine_.paged_cache && !kv.by_age();
  const u64 elsewhere = residency.prefill.written - hidden_rows(shape_, residency.prompt);
  const double whole =
      engine_.evicts_after_prompt
          ? held * static_cast<double>(elsewhere - (in_place ? std::min(residency.prefill.resident, elsewhere) : 0))
          : share * static_cast<double>(residency.layer_prompt_rows);
  const double compacted = buffered ? whole * row * (engine_.prompts_together ? sequences : 1) : 0;
  const double probabilities =
      sequences * share_ * std::max(shape_.heads, shape_.other.heads) * prompt * prompt * 2;
  m.prefill_transient = bytes_of(compacted + engine_.probability_copies * probabilities);
  if (residency.beams > 1) m.beam_copies = bytes_of(engine_.beam_copies * static_cast<double>(m.kv_allocated.value));
  m.reserve = bytes_of(engine_.reserve_gib * kGiB + engine_.reserve_fraction * static_cast<double>(capacity_.value));
  if (draft_) {
    m.draft_weights = draft_->weights_;
    const double tokens = prompt + residency.steps + deployment_.speculation->tokens;
    m.draft_cache = bytes_of(draft_cache_bytes(tokens) * sequences);
  }
  m.capacity = capacity_;
  return m;
}

double CostModel::prompt_bytes(std::uint64_t tokens) const {
  ModelShape shape = shape_;
  if (engine_.keeps_hidden_rows && !shape.compressed) shape.layer_windows.clear();
  return kv_share_ * stage_share_ * static_cast<double>(kv_bytes(shape, types_.kv, tokens).value) +
         draft_cache_bytes(static_cast<double>(tokens));
}

Estimate MemoryLedger::needed() const {
  // FasterTransformer's 42 published peaks and H2O's seven lie within 5 %; 8 % for any engine is a judgement.
  constexpr double k80 = 1.08, k95 = 1.15;
  const auto bytes = static_cast<double>(total().value);
  return {bytes, bytes / k80, bytes * k80, bytes / k95, bytes * k95, CostTerm::kMemory};
}

std::uint64_t CostModel::largest_batch(const ResidencySummary& residency, double scale) const {
  // The ledger grows with the batch: bisect between none and more sequences than the activations of a step leave room
  // for.
  u64 fits = 0;
  const u64 least = live_elements(shape_, deployment_.tensor_parallel) + shape_.vocab;
  const u64 groups = deployment_.data_parallel;
  const u64 most = std::min(capacity_.value / least, static_cast<u64>(engine_.largest_batch));
  u64 too_many = groups * most + 1;
  while (too_many - fits > 1) {
    const u64 middle = fits + (too_many - fits) / 2;
    const MemoryLedger m = ledger(residency, middle);
    const double room = static_cast<double>(capacity_.value) / scale;
    const bool fit = scale == 1 ? m.fits() : static_cast<double>(m.total().value) <= room;
    (fit ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace kvroof
