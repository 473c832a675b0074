#include "kernels/cpu/cpu_backend.hpp"

#include <algorithm>
#include <utility>

#include "kernels/cpu/cache_rows.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/core/error.hpp"
#include "sim/core/kv_quantizer.hpp"

namespace kvroof {
namespace {

std::vector<TokenPos> positions_from(std::uint32_t first, std::size_t count) {
  std::vector<TokenPos> positions(count);
  for (std::size_t i = 0; i < count; ++i) positions[i] = TokenPos(first + static_cast<std::uint32_t>(i));
  return positions;
}

}  // namespace

CpuBackend::CpuBackend(const Model& model, std::unique_ptr<Ops> ops, CpuBackendOptions options)
    : model_(model),
      ops_(std::move(ops)),
      options_(std::move(options)),
      forward_(model, *ops_),
      rules_(attention_rules(model)) {
  check_runnable(options_.policy);
}

CpuBackend::Sequence& CpuBackend::add_sequence(std::uint32_t id, std::uint32_t prompt,
                                               std::uint32_t requested_new_tokens) {
  const ModelShape& shape = model_.config.shape;
  check(!sequences_.contains(id), "a sequence is prefilled once");
  std::map<std::uint32_t, Sequence> made;  // joins the others when its policies are: any of them may refuse the prompt
  Sequence& sequence = made[id];
  sequence.id = id;
  sequence.prompt = prompt;
  sequence.most_tokens = most_tokens(shape, prompt, requested_new_tokens);
  sequence.states.resize(shape.state.layers);
  sequence.layers.reserve(shape.layers);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const PolicyContext context = policy_context(model_, LayerId(layer), id, prompt, requested_new_tokens,
                                                 options_.seed, sequence.token_kinds);
    sequence.layers.push_back({LayerPolicy(options_.policy, context, shape.heads, shape.kv_heads), {}});
  }
  sequences_.merge(made);
  return sequence;
}

KvLayout CpuBackend::layout(const LayerPolicy& policy) const {
  const ModelShape& shape = model_.config.shape;
  return {options_.kv_type, policy.storage_heads(), shape.head_dim, shape.v_head_dim, shape.latent()};
}

// Memory for the most rows that each head can ever hold at once after the prompt.
KvCache CpuBackend::new_cache(const Sequence& sequence, const LayerPolicy& policy) const {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t h = 0; h < policy.storage_heads(); ++h) {
    slots.push_back(policy.most_rows(HeadId(h), sequence.most_tokens));
  }
  return {layout(policy), slots};
}

// Replaces k and v by what a quantised cache gives back of them.
void CpuBackend::round_rows(std::span<const float>& k, std::span<const float>& v) {
  const ModelShape& shape = model_.config.shape;
  k_rows_.assign(k.begin(), k.end());
  v_rows_.assign(v.begin(), v.end());
  const std::size_t k_width = shape.head_dim, v_width = shape.v_head_dim;
  for (std::size_t i = 0; i < k.size() / k_width; ++i) {
    const std::span<float> key = std::span(k_rows_).subspan(i * k_width, k_width);
    const std::span<float> value = std::span(v_rows_).subspan(i * v_width, v_width);
    round_trip_row(options_.kv_type, key);
    if (shape.latent()) {
      std::copy_n(key.begin(), v_width, value.begin());
    } else {
      round_trip_row(options_.kv_type, value);
    }
  }
  k = k_rows_;
  v = v_rows_;
}

void CpuBackend::round_and_record(LayerId layer, std::span<float> q, std::span<const float> k,
                                  std::span<const float> v) {
  const DType type = options_.kv_type.rows();
  if (type == DType::kF32 && recorder_ == nullptr) return;
  const auto rounded = [&](std::span<const float> from, std::vector<std::byte>& to) {
    to.resize(from.size() * size_of(type));
    convert_from_float(type, from, to.data());
  };
  rounded(q, q_bytes_);
  if (type != DType::kF32) convert_to_float(type, q_bytes_.data(), q);
  if (recorder_ == nullptr) return;
  rounded(k, k_bytes_);
  rounded(v, v_bytes_);
  const std::size_t parts = active_.size();
  const auto part = [&](const std::vector<std::byte>& bytes, std::size_t i) {
    return std::span<const std::byte>(bytes).subspan(i * (bytes.size() / parts), bytes.size() / parts);
  };
  for (std::size_t i = 0; i < parts; ++i) {
    const std::uint32_t count = prefilling_ ? active_[i]->prompt : 1;
    recorder_->rows(active_[i]->id, layer, active_[i]->tokens, count, part(q_bytes_, i), part(k_bytes_, i),
                    part(v_bytes_, i));
  }
}

void CpuBackend::attend(LayerId layer, std::span<float> q, std::span<const float> k, std::span<const float> v,
                        std::span<float> out) {
  if (prefilling_ && interrupt_ != nullptr && interrupt_->load()) throw Interrupted{};
  if (options_.kv_type.quantised()) round_rows(k, v);
  round_and_record(layer, q, k, v);
  if (!prefilling_) {
    attend_rows(0, layer, q, k, v, out);
    return;
  }
  Sequence& sequence = *active_[0];
  LayerState& state = sequence.layers[layer.value];
  if (!state.policy.traits().streams_prompt) {
    prefill_layer(sequence, layer, q, k, v, out);
    return;
  }
  state.cache = new_cache(sequence, state.policy);
  note_prompt_usage();
  const std::size_t rows = sequence.prompt;
  const auto row = [&](auto all, std::uint32_t i) { return all.subspan(i * (all.size() / rows), all.size() / rows); };
  for (std::uint32_t i = 0; i < rows; ++i) attend_rows(i, layer, row(q, i), row(k, i), row(v, i), row(out, i));
}

std::span<const StatePart> CpuBackend::states(std::uint32_t layer) {
  if (prefilling_ && interrupt_ != nullptr && interrupt_->load()) throw Interrupted{};
  state_parts_.clear();
  std::size_t first = 0;
  for (Sequence* sequence : active_) {
    const std::size_t count = prefilling_ ? sequence->prompt : 1;
    state_parts_.push_back({&sequence->states[layer], first, count});
    first += count;
  }
  return state_parts_;
}

// Where attention says how much a head holds, nobody knows its room before: it grows by an eighth at a time, as
// growing copies the whole layer.
static std::uint32_t grown(std::uint32_t slots, std::uint32_t most) {
  constexpr std::uint32_t kLeast = 16;
  return std::max(slots, std::min(slots + slots / 8 + kLeast, most));
}

// Stores a token's k and v in the slots that the policy gives it, once for each storage head.
void CpuBackend::admit_row(LayerState& state, std::uint32_t most, TokenPos position, std::span<const float> k,
                           std::span<const float> v) {
  const ModelShape& shape = model_.config.shape;
  const std::uint32_t shared = state.policy.storage_heads() / shape.kv_heads;  // storage heads of one KV head
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    const SlotId slot = state.policy.admit(HeadId(h), position);
    if (slot.value >= state.cache.capacity(HeadId(h))) {
      state.cache.grow(HeadId(h), grown(slot.value + 1, most));
    }
    const std::size_t kv_head = h / shared;
    const auto written = state.cache.store(HeadId(h), slot, k.subspan(kv_head * shape.head_dim, shape.head_dim),
                                           v.subspan(kv_head * shape.v_head_dim, shape.v_head_dim), position);
    ops_->counters().add(Cause::kKvWrite, written);
  }
}

void CpuBackend::attend_rows(std::uint32_t offset, LayerId layer, std::span<const float> q, std::span<const float> k,
                             std::span<const float> v, std::span<float> out) {
  const std::size_t rows = active_.size();
  const auto row = [&](auto all, std::size_t i) { return all.subspan(i * (all.size() / rows), all.size() / rows); };
  calls_.clear();
  for (std::size_t i = 0; i < rows; ++i) {
    LayerState& state = active_[i]->layers[layer.value];
    const TokenPos position(active_[i]->tokens + offset);
    const std::uint32_t window = state.policy.window();
    const std::uint32_t most = active_[i]->most_tokens;
    admit_row(state, window > 0 ? std::min(window, most) : most, position, row(k, i), row(v, i));
    const std::uint32_t group = state.policy.group();
    const std::size_t q_width = std::size_t{group} * model_.config.shape.head_dim;
    const std::size_t out_width = std::size_t{group} * model_.config.shape.v_head_dim;
    for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
      const auto slots = static_cast<std::uint32_t>(state.policy.positions(HeadId(h)).size());
      calls_.push_back({row(q, i).subspan(h * q_width, q_width), state.cache.keys(HeadId(h), slots),
                        state.cache.values(HeadId(h), slots), row(out, i).subspan(h * out_width, out_width), position,
                        &state.policy, HeadId(h), h * group});
    }
  }
  if (active_.front()->layers[layer.value].policy.traits().selects) select(layer);
  if (options_.kv_type.quantised()) count_stored(layer);
  ops_->attend(calls_, rules_[layer.value]);
  for (Sequence* sequence : active_) {
    const CacheRows cached(sequence->layers[layer.value].cache);
    finish_row(*sequence, layer, TokenPos(sequence->tokens + offset), cached, nullptr);
  }
}

// Lets the policy choose what each call reads.
void CpuBackend::select(LayerId layer) {
  selected_.resize(calls_.size());
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    AttendCall& call = calls_[i];
    const std::size_t heads = calls_.size() / active_.size();
    const CacheRows cached(active_[i / heads]->layers[layer.value].cache);
    select_rows(*call.policy, call.head, call.query, call.q, cached, selection_, selected_[i]);
    call.selected = &selected_[i];
  }
}

void CpuBackend::count_stored(LayerId layer) {
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    AttendCall& call = calls_[i];
    const LayerState& state = active_[i / (calls_.size() / active_.size())]->layers[layer.value];
    const SlotRun all{0, static_cast<std::uint32_t>(call.keys.count)};
    call.stored_bytes =
        stored_bytes(state, call.head, call.selected != nullptr ? std::span(call.selected->runs) : std::span(&all, 1));
  }
}

void CpuBackend::prefill_layer(Sequence& sequence, LayerId layer, std::span<const float> q, std::span<const float> k,
                               std::span<const float> v, std::span<float> out) {
  const ModelShape& shape = model_.config.shape;
  LayerState& state = sequence.layers[layer.value];
  const std::uint32_t n = sequence.prompt;
  const std::uint32_t group = state.policy.group();
  const std::uint32_t shared = state.policy.storage_heads() / shape.kv_heads;
  const bool keeps_all = state.policy.keeps_prompt();
  if (keeps_all || prompt_buffer_.capacity(HeadId(0)) < n) {
    prompt_buffer_ = keeps_all ? new_cache(sequence, state.policy) : KvCache(layout(state.policy), n);
  }
  std::vector<PrefillCall> calls;
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    const std::size_t kv_head = h / shared;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::size_t at = std::size_t{i} * shape.kv_heads + kv_head;
      const auto written = prompt_buffer_.store(HeadId(h), SlotId(i), k.subspan(at * shape.head_dim, shape.head_dim),
                                                v.subspan(at * shape.v_head_dim, shape.v_head_dim), TokenPos(i));
      ops_->counters().add(Cause::kKvWrite, written);
    }
    calls.push_back({q.data() + std::size_t{h} * group * shape.head_dim, std::size_t{shape.heads} * shape.head_dim,
                     prompt_buffer_.keys(HeadId(h), n), prompt_buffer_.values(HeadId(h), n),
                     out.data() + std::size_t{h} * group * shape.v_head_dim,
                     std::size_t{shape.heads} * shape.v_head_dim, &state.policy, HeadId(h), h * group,
                     options_.kv_type.quantised() ? layout(state.policy).row_bytes() : 0});
  }
  ops_->prefill_attend(calls, rules_[layer.value]);
  note_prompt_usage();
  const CacheRows rows(prompt_buffer_, n, q, group);
  finish_row(sequence, layer, TokenPos(n - 1), rows, &prompt_buffer_);
}

// Lets the policy evict, tells the recorder, and applies the moves. With a prompt buffer, the rows of the layer lie
// there: survivors are packed into the cache, or, where nothing was evicted, the buffer becomes the cache.
void CpuBackend::finish_row(Sequence& sequence, LayerId layer, TokenPos position, const HeadRowsSource& rows,
                            KvCache* prompt_buffer) {
  LayerState& state = sequence.layers[layer.value];
  state.policy.finish_row(position, &rows);
  const bool packs = prompt_buffer != nullptr && state.policy.packed_prompt();
  if (packs) {
    state.cache = new_cache(sequence, state.policy);
    note_prompt_usage();
  }
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    const HeadEviction& eviction = state.policy.eviction(HeadId(h));
    if (recorder_ != nullptr) record_evictions(*recorder_, state.policy, sequence.id, layer, HeadId(h), position);
    KvCache& shown = prompt_buffer != nullptr ? *prompt_buffer : state.cache;
    ops_->counters().add(Cause::kCompaction, shown.merge(HeadId(h), eviction.merges));
    const auto moved =
        packs ? state.cache.copy(HeadId(h), *prompt_buffer, packing_moves(state.policy.positions(HeadId(h))))
              : state.cache.copy(HeadId(h), state.cache, eviction.moves);
    if (!options_.kv_type.by_age()) ops_->counters().add(Cause::kCompaction, moved);
  }
  if (prompt_buffer != nullptr && !packs) state.cache = std::exchange(*prompt_buffer, KvCache());
  if (options_.kv_type.by_age()) age_rows(state, position, packs);
  ops_->counters().add(Cause::kScores, state.policy.take_walked_state_bytes() +
                                            options_.kv_type.scored_bytes(state.policy.take_read_elements()));
}

// What a residual window gives up is quantised, where it lies or on its way out of the prompt buffer; what stays in it
// is copied out of there.
void CpuBackend::age_rows(LayerState& state, TokenPos position, bool leaves_buffer) {
  const KvLayout rows = layout(state.policy);
  for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
    AgedRows converted = state.cache.age(HeadId(h), state.policy.positions(HeadId(h)), position.value + 1);
    const AgedRows held = state.cache.aged_rows(HeadId(h));
    if (leaves_buffer) converted += {2 * held.keys16, 2 * held.values16, 0, 0};
    const KvBytes bytes = aged_bytes(rows.type, rows.k_width, rows.stored_v_width(), converted);
    ops_->counters().add(Cause::kCompaction, bytes.total());
  }
}

std::uint64_t CpuBackend::stored_bytes(const LayerState& state, HeadId head, std::span<const SlotRun> runs) const {
  const KvLayout of = layout(state.policy);
  if (of.type.by_age()) {
    return aged_bytes(of.type, of.k_width, of.stored_v_width(), state.cache.aged_rows(head, runs)).total();
  }
  std::uint64_t rows = 0;
  for (const SlotRun& run : runs) rows += run.count;
  return rows * of.row_bytes();
}

void CpuBackend::finish_call() {
  for (Sequence* sequence : active_) sequence->tokens += prefilling_ ? sequence->prompt : 1;
  active_.clear();
  prefilling_ = false;
  prompt_buffer_ = KvCache();
  peaks_.note(kv_usage());
  const std::uint64_t experts = forward_.take_experts();
  if (recorder_ != nullptr && experts > 0) recorder_->experts(experts);
}

void CpuBackend::prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested_new_tokens,
                         std::span<float> last, const LogitsSink& all) {
  check(!ids.empty(), "a prompt has at least one token");
  peaks_.begin_prompt(kv_usage());
  active_ = {&add_sequence(sequence, static_cast<std::uint32_t>(ids.size()), requested_new_tokens)};
  prefilling_ = true;
  try {
    note_kinds(model_, ids, 0, active_[0]->token_kinds);
    const std::vector<TokenPos> positions = positions_from(0, ids.size());
    const std::vector<std::uint32_t> prompts(ids.size(), static_cast<std::uint32_t>(ids.size()));
    forward_.run({ids, positions, prompts}, *this, last, all);
  } catch (...) {  // interrupted, or an Error of the recorder, of a sink or for want of memory
    drop_prompt(sequence);
    throw;
  }
  finish_call();
}

void CpuBackend::drop_prompt(std::uint32_t sequence) {
  active_.clear();
  prefilling_ = false;
  prompt_buffer_ = KvCache();
  release(sequence);
}

void CpuBackend::decode(std::span<const DecodeEntry> batch, std::span<float> logits) {
  std::vector<std::int64_t> ids;
  std::vector<TokenPos> positions;
  std::vector<std::uint32_t> prompts;
  active_.clear();
  for (const DecodeEntry& entry : batch) {
    active_.push_back(&sequences_.at(entry.sequence));
    ids.push_back(entry.token);
    note_kinds(model_, {&entry.token, 1}, active_.back()->tokens, active_.back()->token_kinds);
    positions.emplace_back(active_.back()->tokens);
    prompts.push_back(active_.back()->prompt);
  }
  prefilling_ = false;
  forward_.run({ids, positions, prompts}, *this, logits, {});
  finish_call();
}

void CpuBackend::release(std::uint32_t sequence) { sequences_.erase(sequence); }

KvUsage CpuBackend::usage_of(const Sequence& sequence) const {
  KvUsage usage;
  for (const LayerState& state : sequence.layers) {
    if (!options_.kv_type.by_age()) {
      usage.resident_bytes += state.policy.rows_held() * layout(state.policy).row_bytes();
    } else {
      for (std::uint32_t h = 0; h < state.policy.storage_heads(); ++h) {
        const SlotRun all{0, state.cache.capacity(HeadId(h))};
        if (all.count > 0) usage.resident_bytes += stored_bytes(state, HeadId(h), {&all, 1});
      }
    }
    usage.allocated_bytes += state.cache.allocated_bytes();
  }
  for (const HeldState& state : sequence.states) usage.state_bytes += state.bytes();
  return usage;
}

KvUsage CpuBackend::kv_usage() const {
  KvUsage usage;
  usage.allocated_bytes = prompt_buffer_.allocated_bytes();
  for (const auto& [id, sequence] : sequences_) usage += usage_of(sequence);
  peaks_.fill(usage);
  return usage;
}

void CpuBackend::note_prompt_usage() {
  KvUsage usage = usage_of(*active_[0]);
  usage.allocated_bytes += prompt_buffer_.allocated_bytes();
  peaks_.note_prompt(usage);
}

ByteCounters CpuBackend::take_counters() { return std::exchange(ops_->counters(), ByteCounters{}); }

}  // namespace kvroof
