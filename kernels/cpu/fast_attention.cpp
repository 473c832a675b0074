#include "kernels/cpu/fast_attention.hpp"

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/fast_kernels.hpp"
#include "kernels/cpu/scratch.hpp"
#include "sim/core/error.hpp"

namespace kvroof::fast {
namespace {

// Rows of k or v that are converted to float at a time in prefill: 128 KiB at a width of 128.
constexpr std::size_t kKeyTile = 256;

thread_local Scratch packed_scratch;
thread_local Scratch logits_scratch;
thread_local Scratch weights_scratch;
thread_local Scratch tile_scratch;
thread_local std::vector<TokenPos> token_scratch;  // 0, 1, 2, …

std::span<const TokenPos> tokens_up_to(std::size_t count) {
  while (token_scratch.size() < count) token_scratch.emplace_back(static_cast<std::uint32_t>(token_scratch.size()));
  return std::span(token_scratch).first(count);
}

bool wants_rows(const LayerPolicy& policy) { return policy.traits().rows == RowNeed::kAll; }

// Dot products, scaled already, become logits of query head `g` of the group.
void finish_logits(std::span<float> logits, const AttentionRule& rule, std::span<const TokenPos> positions,
                   TokenPos query, std::uint32_t query_head) {
  if (rule.logits.softcap > 0) {
    for (float& x : logits) x = rule.logits.softcap * std::tanh(x / rule.logits.softcap);
  }
  if (!rule.alibi.empty()) add_alibi(positions, query, rule.alibi[query_head], logits);
}

void show(LayerPolicy& policy, HeadId head, TokenPos query, std::uint32_t group, const float* logits,
          const float* weights) {
  AttentionRows rows;
  rows.step = policy.step_of(query);
  rows.query = query;
  rows.positions = policy.positions(head);
  rows.group = group;
  rows.logits = logits;
  rows.weights = policy.traits().needs_weights ? weights : nullptr;
  policy.observe(head, rows);
}

// A view of float rows as BLAS takes it.
struct FloatRows {
  const float* data;
  int stride;
};

FloatRows float_tile(const RowsView& rows) {
  if (rows.type == DType::kF32) return {reinterpret_cast<const float*>(rows.data), static_cast<int>(rows.stride)};
  float* tile = tile_scratch.floats(kKeyTile * rows.width);
  convert_rows(rows, tile);
  return {tile, static_cast<int>(rows.width)};
}

// The first token that the query sees.
std::size_t first_seen(std::size_t query, std::uint32_t window) {
  return window > 0 && query >= window ? query + 1 - window : 0;
}

// One block of query rows [first, last) of a prompt, over the tokens [begin, last) that any of them sees. Row i of
// query head g has its logits, then its weights, at scores + ((i − first) · group + g) · (last − begin).
class PrefillBlock {
 public:
  PrefillBlock(const PrefillCall& call, const AttentionRule& rule, std::size_t first, std::size_t last)
      : call_(call), rule_(rule), first_(first), last_(last), begin_(first_seen(first, call.policy->window())),
        group_(call.policy->group()), scores_(logits_scratch.floats((last - first) * group_ * (last - begin_))) {}

  void run() {
    multiply_keys();
    for (std::size_t i = first_; i < last_; ++i) finish_row(i);
    multiply_values();
  }

 private:
  [[nodiscard]] int queries() const { return static_cast<int>(last_ - first_); }
  [[nodiscard]] int scores_stride() const { return static_cast<int>(group_ * (last_ - begin_)); }
  [[nodiscard]] float* row_scores(std::size_t i, std::size_t g, std::size_t token) const {
    return scores_ + ((i - first_) * group_ + g) * (last_ - begin_) + (token - begin_);
  }

  void multiply_keys() {
    const auto width = static_cast<int>(call_.keys.width);
    for (std::size_t key = begin_; key < last_; key += kKeyTile) {
      const std::size_t count = std::min(kKeyTile, last_ - key);
      const FloatRows keys = float_tile(call_.keys.slice(key, count));
      for (std::size_t g = 0; g < group_; ++g) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, queries(), static_cast<int>(count), width,
                    rule_.logits.scale, call_.q + first_ * call_.q_stride + g * call_.keys.width,
                    static_cast<int>(call_.q_stride), keys.data, keys.stride, 0.0F, row_scores(first_, g, key),
                    scores_stride());
      }
    }
  }

  // Logits of one row become weights, zero for tokens that it does not see; the policy sees both, by slot.
  void finish_row(std::size_t i) {
    LayerPolicy& policy = *call_.policy;
    const TokenPos query(static_cast<std::uint32_t>(i));
    policy.admit(call_.head, query);
    const PromptRows seen = prompt_rows(policy, call_.head, query);
    const bool shown = wants_rows(policy);
    float* logits = shown ? weights_scratch.floats(2 * group_ * seen.count) : nullptr;
    float* weights = shown ? logits + group_ * seen.count : nullptr;
    const auto copy_by_slot = [&](std::span<const float> scores, float* to, std::size_t g) {
      if (!shown) return;
      const auto newest = scores.end() - static_cast<std::ptrdiff_t>(seen.oldest);
      std::rotate_copy(scores.begin(), newest, scores.end(), to + g * seen.count);
    };
    for (std::size_t g = 0; g < group_; ++g) {
      const std::span<float> scores(row_scores(i, g, seen.first), seen.count);
      finish_logits(scores, rule_, tokens_up_to(last_).subspan(seen.first, seen.count), query,
                    call_.first_query_head + static_cast<std::uint32_t>(g));
      copy_by_slot(scores, logits, g);
      softmax_row(scores, scores);
      copy_by_slot(scores, weights, g);
      std::fill(row_scores(i, g, begin_), row_scores(i, g, seen.first), 0.0F);
      std::fill(row_scores(i, g, i + 1), row_scores(i, g, last_), 0.0F);
    }
    if (shown) show(policy, call_.head, query, static_cast<std::uint32_t>(group_), logits, weights);
  }

  void multiply_values() {
    const auto width = static_cast<int>(call_.values.width);
    for (std::size_t token = begin_; token < last_; token += kKeyTile) {
      const std::size_t count = std::min(kKeyTile, last_ - token);
      const FloatRows values = float_tile(call_.values.slice(token, count));
      for (std::size_t g = 0; g < group_; ++g) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, queries(), width, static_cast<int>(count), 1.0F,
                    row_scores(first_, g, token), scores_stride(), values.data, values.stride,
                    token == begin_ ? 0.0F : 1.0F, call_.out + first_ * call_.out_stride + g * call_.values.width,
                    static_cast<int>(call_.out_stride));
      }
    }
  }

  const PrefillCall& call_;
  const AttentionRule& rule_;
  std::size_t first_, last_, begin_, group_;
  float* scores_;
};

}  // namespace

void attend_one(const AttendCall& call, const AttentionRule& rule) {
  const std::size_t slots = call.keys.count;
  const std::size_t width = call.keys.width;
  const std::size_t group = call.q.size() / width;
  LayerPolicy& policy = *call.policy;
  check(slots > 0 && policy.positions(call.head).size() == slots,
        "attention runs over the slots that the policy holds");
  float* packed = packed_scratch.floats(group * packed_size(width));
  float* logits = logits_scratch.floats(group * slots);
  float* weights = weights_scratch.floats(group * slots);
  pack_vectors(call.keys.type, call.q.data(), width, group, width, packed);
  dot_rows(call.keys, packed, group, logits, slots);
  for (std::size_t i = 0; i < group * slots; ++i) logits[i] *= rule.logits.scale;
  for (std::size_t g = 0; g < group; ++g) {
    const std::span<float> of_head(logits + g * slots, slots);
    finish_logits(of_head, rule, policy.positions(call.head), call.query,
                  call.first_query_head + static_cast<std::uint32_t>(g));
    softmax_row(of_head, {weights + g * slots, slots});
  }
  weighted_rows(weights, slots, group, call.values, call.out.data(), call.values.width);
  if (wants_rows(policy)) show(policy, call.head, call.query, static_cast<std::uint32_t>(group), logits, weights);
}

void prefill_attend_one(const PrefillCall& call, const AttentionRule& rule) {
  const std::size_t rows = call.keys.count;
  for (std::size_t first = 0; first < rows; first += kPrefillBlock) {
    PrefillBlock(call, rule, first, std::min<std::size_t>(first + kPrefillBlock, rows)).run();
  }
}

std::uint64_t prefill_rows_walked(std::uint64_t prompt, std::uint32_t window) {
  std::uint64_t rows = 0;
  for (std::uint64_t first = 0; first < prompt; first += kPrefillBlock) {
    rows += std::min<std::uint64_t>(first + kPrefillBlock, prompt) - first_seen(first, window);
  }
  return rows;
}

}  // namespace kvroof::fast
