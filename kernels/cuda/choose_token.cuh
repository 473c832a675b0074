// The token that greedy decoding takes of each row of logits, and its log-probability, so that the rows stay where they
// are made: those of 64 sequences over 128k tokens are 33 MB a step.
#pragma once

#include "kernels/cuda/attention_splits.cuh"

namespace kvroof::cuda {

constexpr unsigned kChoiceThreads = 1024;
constexpr unsigned kLogitsAtOnce = 16;  // that a thread has on their way

// Where a logit stands among those of its row: the largest first, of equals (0 and −0 too) the first.
KV_DEVICE std::uint64_t choice_key(float logit, std::uint32_t token) {
  return std::uint64_t{~ordered_bits(logit + 0.0F)} << 32 | token;
}

// What a thread has met: the best key, and Σ exp(x − base) with base the largest x, or finite below any.
struct MetLogits {
  std::uint64_t key = ~std::uint64_t{0};
  float base = kNever;
  float sum = 0;
};

KV_DEVICE void meet_logits(const float* row, std::uint32_t vocab, std::uint32_t first, MetLogits& met) {
  float logits[kLogitsAtOnce];
  KV_UNROLL
  for (unsigned i = 0; i < kLogitsAtOnce; ++i) {
    const std::uint32_t token = first + i * kChoiceThreads;
    logits[i] = token < vocab ? row[token] : float_of(0xff800000U);  // −∞
  }
  float base = met.base;
  KV_UNROLL
  for (unsigned i = 0; i < kLogitsAtOnce; ++i) {
    const std::uint32_t token = first + i * kChoiceThreads;
    const std::uint64_t key = choice_key(logits[i], token);
    met.key = token < vocab && key < met.key ? key : met.key;
    base = higher_of(base, logits[i]);
  }
  met.sum *= exp_of(met.base - base);
  met.base = base;
  KV_UNROLL
  for (unsigned i = 0; i < kLogitsAtOnce; ++i) met.sum += exp_of(logits[i] - base);
}

// Blocks of kChoiceThreads, one a row. The chosen token's logit is the largest, so that its log-probability is
// −log Σ exp(x − largest): no finite number where a logit is NaN or +∞, or all are −∞.
KV_PLAIN_KERNEL KV_RESIDENT(kChoiceThreads, 1) void choose_token(TokenChoiceArguments a) {
  KV_SHARED(std::uint64_t, keys, kChoiceThreads / 32);
  KV_SHARED(float, sums, kChoiceThreads / 32);
  await_previous();
  const float* row = a.logits + std::size_t{block_x()} * a.vocab;
  MetLogits met;
  for (std::uint32_t first = thread_x(); first < a.vocab; first += kChoiceThreads * kLogitsAtOnce) {
    meet_logits(row, a.vocab, first, met);
  }
  const auto token = static_cast<std::uint32_t>(lowest_over_block(met.key, keys));
  const float base = higher_of(row[token], kNever);
  const float sum = block_sum(met.sum * exp_of(met.base - base), sums);
  if (thread_x() == 0) a.chosen[block_x()] = {token, 0.0F - logf(sum)};
}

}  // namespace kvroof::cuda
