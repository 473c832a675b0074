#include "sim/cost/memory_model.hpp"

#include <algorithm>
#include <cmath>

#include "sim/cost/held_rows.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Elements alive at once for one token: the residual, or its streams, and its norm, and the widest of attention and MLP
// (of a layer of experts, those that the token chose; of a layer with a state, what goes into it and what comes out).
u64 live_elements(const ModelShape& s, std::uint32_t devices) {
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

// Of a prompt's rows those that windows have let go by its end, which no buffer keeps.
u64 hidden_rows(const ModelShape& shape, u64 prompt) {
  u64 rows = 0;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    if (shape.window(layer) == 0 || !shape.has_own_rows(layer)) continue;
    rows += shape.rows_of_token(layer) * (prompt - std::min<u64>(prompt, shape.window(layer)));
  }
  return rows;
}

// Whether layers hold the rows too that their windows no longer show. Windows beside compressed rows have a cache of
// their own kind, which no engine is known to keep whole.
bool keeps_hidden_rows(const Placement& placed) {
  return placed.engine.keeps_hidden_rows && !placed.shape.compressed;
}

// Whether this sequence's layers hold them while it is decoded.
bool holds_hidden_rows(const Placement& placed, const ResidencySummary& residency) {
  return keeps_hidden_rows(placed) && !residency.evicts && !placed.shape.layer_windows.empty();
}

// Rows that a policy keeps apart, for each of the model.
u64 rows_of_one(const ModelShape& shape, const ResidencySummary& residency) {
  return std::max(residency.storage_heads / std::max(shape.kv_heads, 1U), 1U);
}

// Of one row in the layers' mean; an index may have keys in some of them alone.
double mean_row_bytes(const ModelShape& shape, KvType kv) {
  return static_cast<double>(held_bytes(shape, kv, shape.layers).total()) / shape.layers;
}

}  // namespace

// Drafted rows lie in the cache beside those that stay, until the step that verifies them has ended.
KvBytes MemoryModel::allocated(const ResidencySummary& residency) const {
  const ModelShape& shape = placed_.shape;
  const KvType& kv = placed_.types().kv;
  const u64 rows = shape.other.layers.empty() && shape.sharing_layers == 0
                       ? u64{residency.storage_heads} * residency.layers
                       : rows_of_token(shape) * rows_of_one(shape, residency);
  const u64 drafted = rows * (placed_.deployment.step_tokens().passed - 1);
  KvBytes bytes = allocated_for_tokens(residency);
  if (drafted == 0) return bytes;
  if (!kv.by_age()) return bytes + held_bytes(shape, kv, drafted);
  bytes += KvBytes{0, 0, held_bytes(shape, kv.rows(), drafted).total()};
  return bytes;
}

KvBytes MemoryModel::allocated_for_tokens(const ResidencySummary& residency) const {
  const ModelShape& shape = placed_.shape;
  const EngineProfile& engine = placed_.engine;
  const KvType& kv = placed_.types().kv;
  if (state_pages()) return kv_row(shape, kv) * rows_in_state_pages(residency, residency.peak_rows);
  if (!holds_hidden_rows(placed_, residency)) {
    return residency.allocated_bytes(shape, kv, engine.paged_cache);
  }
  const u64 tokens = u64{residency.prompt} + residency.steps;
  if (!kv.by_age()) {
    return held_bytes(shape, kv, rows_of_token(shape) * (engine.paged_cache ? in_pages(tokens) : tokens));
  }
  ModelShape whole = shape;
  whole.layer_windows.clear();
  const ResidencySummary all = full_attention_summary(whole, residency.prompt, residency.steps);
  return all.allocated_bytes(whole, kv, engine.paged_cache);
}

void MemoryModel::add_cache(MemoryLedger& m, const ResidencySummary& residency, double sequences) const {
  const KvType& kv = placed_.types().kv;
  // Of all rows, on this device.
  const double share = kv_share_of(residency.storage_heads, static_cast<double>(residency.peak_rows),
                                   holds_hidden_rows(placed_, residency));
  const double held = share * placed_.stage_share;
  const auto of_batch = [&](u64 bytes) { return bytes_of(held * static_cast<double>(bytes) * sequences); };
  const KvBytes allocated = this->allocated(residency);
  m.kv_allocated = of_batch(allocated.total());
  if (kv.quantised()) m.kv_scales = of_batch(allocated.scales);  // keys of an index have some beside any cache
  m.kv_residual = of_batch(allocated.residual);
  const double rows = held * static_cast<double>(residency.peak_rows) * sequences;
  const auto bounds = static_cast<double>(kv.scored_bytes(residency.peak_page_metadata));
  m.policy_state = bytes_of(rows * static_cast<double>(residency.state_bytes_per_row) + held * bounds * sequences);
  if (residency.beams > 1) {
    m.beam_copies = bytes_of(placed_.engine.beam_copies * static_cast<double>(m.kv_allocated.value));
  }
}

// Sequences are prefilled one after the other, long ones in chunks, unless the engine takes all prompts as one.
Bytes MemoryModel::activations(const ResidencySummary& residency, double sequences) const {
  const EngineProfile& engine = placed_.engine;
  const auto live = static_cast<double>(live_elements(placed_.shape, placed_.deployment.tensor_parallel));
  const double vocab = placed_.shape.vocab, prompt = residency.prompt;
  const double decode = sequences * placed_.deployment.step_tokens().passed * (live + vocab);
  double prefill = std::min(prompt, engine.prompt_chunk) * live + vocab;
  if (!engine.fused_attention) prefill = 0;
  if (engine.prompts_together) prefill = sequences * (prompt * live + vocab);
  return bytes_of(engine.activation_bytes * std::max(decode, prefill));
}

// A prompt lies in a buffer of its own before it is packed or, with a residual window, quantised.
Bytes MemoryModel::prefill_transient(const ResidencySummary& residency, double sequences) const {
  const ModelShape& shape = placed_.shape;
  const EngineProfile& engine = placed_.engine;
  const KvType& kv = placed_.types().kv;
  // Pages that rows leave are free at once: where a prompt is evicted from in them, what stays is not there twice.
  const bool in_place = engine.paged_cache && !kv.by_age();
  const u64 hidden =
      keeps_hidden_rows(placed_) ? 0 : rows_of_one(shape, residency) * hidden_rows(shape, residency.prompt);
  const u64 elsewhere = residency.prefill.written - std::min(residency.prefill.written, hidden);
  const u64 stays = in_place ? std::min(residency.prefill.resident, elsewhere) : 0;
  const double share = kv_share_of(residency.storage_heads, static_cast<double>(elsewhere), keeps_hidden_rows(placed_));
  // What repeats a part of the prompt lies behind all of it.
  const double repeated = std::min<double>(residency.repeats, residency.prompt) / residency.prompt;
  const double whole =
      engine.evicts_after_prompt || residency.repeats > 0
          ? share * placed_.stage_share *
                (static_cast<double>(elsewhere - stays) + repeated * static_cast<double>(elsewhere))
          : layer_share(residency.storage_heads) * static_cast<double>(residency.layer_prompt_rows);
  const double row = mean_row_bytes(shape, kv.by_age() ? KvType(kv.rows()) : kv);
  const bool buffered = residency.evicts || kv.by_age();
  const double compacted = buffered ? whole * row * (engine.prompts_together ? sequences : 1) : 0;
  const double heads = placed_.share * std::max(shape.heads, shape.other.heads), prompt = residency.prompt;
  const double probabilities = sequences * heads * prompt * prompt * 2;
  return bytes_of(compacted + engine.probability_copies * probabilities);
}

double MemoryModel::layer_share(std::uint32_t storage_heads) const {
  const ModelShape& shape = placed_.shape;
  if (shape.other.layers.empty()) return placed_.kv_share_of(storage_heads, 0);
  const double most = shape.kv_heads, other = shape.rows_of_token(shape.other.layers.front());
  return std::max(most * placed_.kv_share_of(storage_heads, 0), other * placed_.kv_share_of(storage_heads, 1)) /
         std::max(most, other);
}

MemoryLedger MemoryModel::ledger(const ResidencySummary& residency, std::uint64_t batch) const {
  const auto sequences = static_cast<double>(placed_.deployment.of_a_group(batch));
  const EngineProfile& engine = placed_.engine;
  MemoryLedger m;
  m.weights = placed_.weights;
  m.capacity = placed_.capacity;
  add_cache(m, residency, sequences);
  const double once = held_compressors(), others = allocated_states() - once;
  m.states = bytes_of((others * placed_.deployment.step_tokens().passed + once) * sequences);
  m.activations = activations(residency, sequences);
  m.prefill_transient = prefill_transient(residency, sequences);
  m.reserve = bytes_of(engine.reserve_gib * kGiB + engine.reserve_fraction * static_cast<double>(m.capacity.value));
  if (draft_) {
    m.draft_weights = draft_->placed_.weights;
    const double tokens = double{1} * residency.prompt + residency.steps + placed_.deployment.speculation->tokens;
    m.draft_cache = bytes_of(draft_cache_bytes(tokens) * sequences);
  }
  return m;
}

double MemoryModel::prompt_bytes(std::uint64_t tokens) const {
  ModelShape shape = placed_.shape;
  if (keeps_hidden_rows(placed_)) shape.layer_windows.clear();
  const double share = kv_share_of(shape.kv_heads, rows_held(shape, static_cast<double>(tokens)),
                                   keeps_hidden_rows(placed_));
  return share * placed_.stage_share *
             static_cast<double>(kv_bytes(shape, placed_.types().kv, tokens).value) +
         draft_cache_bytes(static_cast<double>(tokens));
}

double MemoryModel::whole_cache_bytes(double tokens) const {
  const double rows = rows_held(placed_.shape, tokens);
  return kv_share_of(placed_.shape.kv_heads, rows, false) * rows * mean_row_bytes(placed_.shape, placed_.types().kv);
}

double MemoryModel::held_compressors() const {
  return placed_.kv_share * placed_.stage_share * static_cast<double>(compressor_bytes(placed_.shape));
}

double MemoryModel::held_states() const {
  const double of_draft = draft_ ? draft_->held_states() : 0;
  const double layers = placed_.shape.state.layers;
  if (!(layers > 0)) return of_draft + held_compressors();
  const double of_stage = std::ceil(layers / placed_.deployment.stages) / layers;
  const auto states = static_cast<double>(state_bytes(placed_.shape, placed_.types().weights).value);
  return of_draft + placed_.share * of_stage * states;
}

// As vLLM has it since it caches hybrids (vllm-project/vllm #24280): a page of attention holds the rows of as many
// tokens as the state of one layer has bytes on a device, in steps of 16; a group of layers, as many as there are of
// the rarer kind, takes its pages together, so that the last group of the other kind may have some for nothing.
std::optional<MemoryModel::StatePages> MemoryModel::state_pages() const {
  const ModelShape& shape = placed_.shape;
  const TrafficTypes& types = placed_.types();
  if (!placed_.engine.state_pages || shape.state.layers == 0 || types.kv.by_age()) return std::nullopt;
  constexpr u64 kStep = 16;
  const double token = placed_.kv_share * static_cast<double>(shape.kv_heads * row_bytes(shape, types.kv));
  const double state = placed_.share * static_cast<double>(state_bytes(shape.state, shape.hidden, types.weights));
  const u64 tokens = kStep * static_cast<u64>(std::ceil(state / (kStep * token) - 1e-9));
  const u64 group = std::min(shape.layers, shape.state.layers);
  return StatePages{tokens, static_cast<double>(tokens) * token, (shape.state.layers + group - 1) / group * group};
}

std::uint64_t MemoryModel::rows_in_state_pages(const ResidencySummary& residency, std::uint64_t rows) const {
  const auto pages = state_pages();
  if (!pages) return rows;
  const u64 heads = u64{residency.layers} * residency.storage_heads;  // alike in hybrids' layers
  const u64 of_page = pages->tokens * heads;
  return (rows + of_page - 1) / of_page * of_page;
}

double MemoryModel::allocated_states() const {
  const auto pages = state_pages();
  if (!pages) return held_states();
  const double of_draft = draft_ ? draft_->allocated_states() : 0;
  const double of_stage = std::ceil(static_cast<double>(pages->states) / placed_.deployment.stages);
  return of_draft + of_stage * pages->bytes;
}

Estimate MemoryLedger::needed() const {
  // FasterTransformer's 42 published peaks and H2O's seven lie within 5 %; 8 % for any engine is a judgement.
  return around(static_cast<double>(total().value), 0.08, 0.15, CostTerm::kMemory);
}

// The ledger grows with the batch: bisect between none and more sequences than the activations of a step leave room
// for.
std::uint64_t MemoryModel::largest_batch(const ResidencySummary& residency, double scale) const {
  u64 fits = 0;
  const u64 least = live_elements(placed_.shape, placed_.deployment.tensor_parallel) + placed_.shape.vocab;
  const u64 most = std::min(placed_.capacity.value / least, static_cast<u64>(placed_.engine.largest_batch));
  u64 too_many = placed_.deployment.data_parallel * most + 1;
  while (too_many - fits > 1) {
    const u64 middle = fits + (too_many - fits) / 2;
    const MemoryLedger m = ledger(residency, middle);
    const double room = static_cast<double>(placed_.capacity.value) / scale;
    const bool fit = scale == 1 ? m.fits() : static_cast<double>(m.total().value) <= room;
    (fit ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace kvroof
