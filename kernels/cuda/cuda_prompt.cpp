// The part of CudaBackend that runs prompts.
#include <algorithm>

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_tables.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/core/error.hpp"

namespace kvroof::cuda {
namespace {

constexpr std::uint32_t kLogitBlockBytes = 8U << 20;
constexpr std::uint32_t kPromptBlock = 32;  // queries of a prompt whose rows go to the host together

}  // namespace

void CudaBackend::attend_prompt(const AttentionInput& input) {
  Sequence& sequence = *active_[0];
  LayerState& state = sequence.layers[input.layer.value];
  const std::uint32_t n = sequence.prompt;
  const PolicyTraits& traits = state.policy.traits();
  if (traits.streams_prompt) return stream_prompt(input);
  const bool keeps_all = keeps_prompt(options_.policy.budget, state.policy, n);
  const std::uint32_t storage_heads = state.policy.storage_heads();
  if (keeps_all || prompt_buffer_.capacity() < n) {
    prompt_buffer_ = DeviceCache(shape(), storage_heads, keeps_all ? capacity_for(sequence, state.policy) : n);
  }
  const DeviceCache* buffer = &prompt_buffer_;
  prepare(input, {&buffer, 1}, {});
  record(input, 0);
  if (traits.rows == RowNeed::kNone) {
    for (std::uint32_t i = 0; i < n * storage_heads; ++i) {
      state.policy.admit(HeadId(i % storage_heads), TokenPos(i / storage_heads));
    }
    attend_prompt_at_once(input, storage_heads);
  } else {
    for (std::uint32_t first = 0; first < n; first += kPromptBlock) {
      std::vector<Query> queries;
      for (std::uint32_t i = first; i < std::min(n, first + kPromptBlock); ++i) {
        const std::uint32_t window = state.policy.window();
        const std::uint32_t length = window > 0 ? std::min(window, i + 1) : i + 1;
        queries.push_back({&sequence, i, buffer, i + 1 - length, length, true});
      }
      attend(input, first, queries);
    }
  }
  note_peak();
  finish_row(sequence, input.layer, TokenPos(n - 1), &prompt_buffer_);
}

// The policy evicts after every row of the prompt: each is a step of its own.
void CudaBackend::stream_prompt(const AttentionInput& input) {
  Sequence& sequence = *active_[0];
  LayerState& state = sequence.layers[input.layer.value];
  state.cache = DeviceCache(shape(), state.policy.storage_heads(), capacity_for(sequence, state.policy));
  note_peak();
  const std::size_t width = weights_->layers[input.layer.value].qkv.matrix.rows;
  AttentionInput row = input;
  row.tokens = 1;
  for (std::uint32_t i = 0; i < sequence.prompt; ++i) {
    row.projections = input.projections + i * width;
    row.positions = input.positions + i;
    if (input.turns != nullptr) row.turns = input.turns + std::size_t{i} * input.rotary_pairs * 2;
    row.out = input.out + std::size_t{i} * shape().heads * shape().v_head_dim;
    attend_step(row, i);
  }
}

void CudaBackend::attend_prompt_at_once(const AttentionInput& input, std::uint32_t storage_heads) {
  const LayerRule& rule = model_.config.options.layers[input.layer.value];
  std::vector<CacheSlots> slots;
  prompt_buffer_.append_slots(slots);
  DeviceTables tables(stream_, tables_);
  const std::size_t slots_at = tables.add(std::span<const CacheSlots>(slots));
  tables.send();
  PromptArguments a;
  a.slots = tables.at<CacheSlots>(slots_at);
  a.q = q_.at<float>();
  a.key_row_bytes = cache_row_bytes(shape().head_dim);
  a.value_row_bytes = cache_row_bytes(shape().v_head_dim);
  a.tokens = input.tokens;
  a.heads = shape().heads;
  a.group = shape().heads / storage_heads;
  a.head_dim = shape().head_dim;
  a.value_dim = shape().v_head_dim;
  a.scale = rule.scale;
  a.softcap = rule.softcap;
  a.window = shape().window(input.layer.value);
  a.alibi = weights_->alibi;
  a.out = input.out;
  // A tile of queries meets the rows up to its last one; the query heads of a group find them in the cache of the chip.
  std::uint64_t rows = 0;
  for (std::uint32_t first = 0; first < input.tokens; first += kPromptQueries) {
    rows += std::min(first + kPromptQueries, input.tokens);
  }
  counters_.add(Cause::kKvRead, rows * storage_heads * row_bytes());
  run_prompt_attention(stream_, cache_type_, a);
}

void CudaBackend::prompt_logits(std::uint32_t n, std::span<float> last, const LogitsSink& all) {
  if (!all) return forward_->logits(n - 1, last);
  std::vector<float> logits;
  const std::uint32_t block = std::max(1U, kLogitBlockBytes / (4 * shape().vocab));
  for (std::uint32_t first = 0; first < n; first += block) {
    logits.resize(std::size_t{std::min(block, n - first)} * shape().vocab);
    forward_->logits(first, logits);
    all(logits);
  }
  if (!last.empty()) std::copy(logits.end() - shape().vocab, logits.end(), last.begin());
}

void CudaBackend::prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested_new_tokens,
                          std::span<float> last, const LogitsSink& all) {
  check(!ids.empty(), "a prompt has at least one token");
  const auto n = static_cast<std::uint32_t>(ids.size());
  active_ = {&add_sequence(sequence, n, requested_new_tokens)};
  std::vector<std::uint32_t> positions(n);
  for (std::uint32_t i = 0; i < n; ++i) positions[i] = i;
  q_.reserve(sizeof(float) * n * shape().heads * shape().head_dim);
  const std::vector<std::uint8_t> use_long = use_long_rotary(model_.config.options, std::vector<std::uint32_t>(n, n));
  try {
    forward_->run({ids, positions, use_long}, [&](const AttentionInput& input) {
      if (interrupt_ != nullptr && interrupt_->load()) throw Interrupted{};
      attend_prompt(input);
    });
  } catch (const Interrupted&) {
    active_.clear();
    prompt_buffer_ = DeviceCache();
    release(sequence);
    throw;
  }
  prompt_logits(n, last, all);
  check_device(stream_.problem, "launching kernels");
  active_[0]->tokens = n;
  prompt_buffer_ = DeviceCache();
  note_peak();
}

}  // namespace kvroof::cuda
