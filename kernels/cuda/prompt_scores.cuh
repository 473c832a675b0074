// What the rows of a prompt add to the scores of its tokens, on the tensor cores: a second pass over the products of
// queries and keys, with the log-sums that attention left (as FlashAttention's backward pass has them, Dao 2023). No
// row of weights is ever stored, and every sum has one order.
#pragma once

#include "kernels/cuda/prompt_attention.cuh"
#include "sim/core/gumbel.hpp"

namespace kvroof::cuda {

// The noise on the logit of `query` against the token `key`, in the query head `head`.
KV_DEVICE float prompt_noise(const PromptScoreArguments& s, unsigned head, unsigned query, unsigned key) {
  if (s.noise == ScoreNoise::kNone || key >= s.rows.tokens) return 0;
  if (s.noise == ScoreNoise::kPerQuery) return gumbel_draw({s.seed, s.sequence, s.layer, head, key, query});
  const CacheSlots& slots = s.rows.slots[head / s.rows.group];
  return float_of(slots.state[std::size_t{1 + head % s.rows.group} * slots.stride + key]);
}

// One draw for each token and query head, kept beside the slots: a thread a token, y over query heads.
KV_PLAIN_KERNEL void draw_prompt_noise(PromptScoreArguments s) {
  await_previous();
  const unsigned key = block_x() * kPromptThreads + thread_x();
  if (key >= s.rows.tokens) return;
  const unsigned head = block_y();
  const CacheSlots& slots = s.rows.slots[head / s.rows.group];
  slots.state[std::size_t{1 + head % s.rows.group} * slots.stride + key] =
      bits_of(gumbel_draw({s.seed, s.sequence, s.layer, head, key}));
}

// The log-sum-exp of (logit + noise) / temperature of each row. Blocks of kPromptThreads: x over tiles of queries, y
// over query heads.
template <Stored kType, unsigned kWidth>
KV_KERNEL void prompt_noisy_sums(PromptScoreArguments s) {
  KV_SHARED(Pack, keys, kKeyPacks<kWidth>);
  KV_SHARED(float, scales, kKeys);
  await_previous();
  const PromptArguments& a = s.rows;
  const unsigned lane = thread_x() % 32;
  const unsigned head = block_y();
  const CacheSlots slots = a.slots[head / a.group];
  const unsigned block_first = block_x() * kQueries;
  const unsigned first_query = block_first + thread_x() / 32 * 16;
  const float slope = a.alibi != nullptr ? a.alibi[head] : 0.0F;
  QueryFactors<kType, kWidth> factors;
  load_query_factors(a, head, first_query, factors);
  float highest[2] = {kHidden, kHidden};
  float total[2] = {0, 0};
  const unsigned end = block_first + kQueries < a.tokens ? block_first + kQueries : a.tokens;
  const unsigned begin = a.window > 0 && block_first + 1 > a.window ? (block_first + 1 - a.window) / kKeys * kKeys : 0;
  for (unsigned first_key = begin; first_key < end; first_key += kKeys) {
    sync_block();
    load_head_rows<kType, kWidth>(slots.keys, a.key_row_bytes, a.head_dim, first_key, end, keys);
    load_scales<kType>(slots.key_scales, first_key, end, scales);
    sync_block();
    float logits[kKeys / 8][4];
    tile_logits(a, factors, keys, scales, first_query, first_key, slope, logits);
    KV_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned query = first_query + lane / 4 + half * 8;
      KV_UNROLL
      for (unsigned n = 0; n < kKeys / 8; ++n) {
        KV_UNROLL
        for (unsigned i = 0; i < 2; ++i) {
          const float logit = logits[n][half * 2 + i];
          if (logit <= kHidden) continue;
          const unsigned key = first_key + n * 8 + lane % 4 * 2 + i;
          const float x = (logit + prompt_noise(s, head, query, key)) / s.temperature;
          const float top = x > highest[half] ? x : highest[half];
          total[half] = total[half] * exp_of(highest[half] - top) + exp_of(x - top);
          highest[half] = top;
        }
      }
    }
  }
  KV_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned query = first_query + lane / 4 + half * 8;
    const float top = max_over(highest[half], 4);
    const float sum = sum_over(total[half] * exp_of(highest[half] - top), 4);
    if (lane % 4 == 0 && query < a.tokens) s.log_sums[std::size_t{head} * a.tokens + query] = top + logf(sum);
  }
}

// Adds a tile's weights to those of the other heads of its group: [columns of the tile][rows] as tile_logits has them.
template <Stored kType, unsigned kWidth>
KV_DEVICE void add_tile_weights(const PromptScoreArguments& s, const Pack* keys, const float* scales, unsigned head,
                                unsigned first_query, unsigned first_key, float (&weights)[kKeys / 8][4]) {
  const PromptArguments& a = s.rows;
  const unsigned lane = thread_x() % 32;
  QueryFactors<kType, kWidth> factors;
  load_query_factors(a, head, first_query, factors);
  float logits[kKeys / 8][4];
  tile_logits(a, factors, keys, scales, first_query, first_key, a.alibi != nullptr ? a.alibi[head] : 0.0F, logits);
  KV_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned query = first_query + lane / 4 + half * 8;
    const float sum = query < a.tokens ? s.log_sums[std::size_t{head} * a.tokens + query] : 0.0F;
    KV_UNROLL
    for (unsigned n = 0; n < kKeys / 8; ++n) {
      KV_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        float logit = logits[n][half * 2 + i];
        if (logit <= kHidden) continue;
        if (s.kind == ScoreKind::kNoisySum) {
          logit = (logit + prompt_noise(s, head, query, first_key + n * 8 + lane % 4 * 2 + i)) / s.temperature;
        }
        const float weight = exp_of(logit - sum);
        float& all = weights[n][half * 2 + i];
        all = s.reduction != ScoreReduction::kMax ? all + weight : weight > all ? weight : all;
      }
    }
  }
}

// Marks in `ring`, kHistoryWords words a key of the tile, which of a warp's sixteen rows count: row i's bit is i modulo
// the history, as the rows of a decode step have it.
constexpr unsigned kHistoryWords = kMostPromptHistory / 32;
KV_DEVICE void mark_hits(const PromptScoreArguments& s, const float (&weights)[kKeys / 8][4], unsigned first_query,
                         unsigned first_key, std::uint32_t* ring) {
  const unsigned lane = thread_x() % 32;
  const float share = s.reduction == ScoreReduction::kMean ? 1.0F / static_cast<float>(s.rows.group) : 1.0F;
  KV_UNROLL
  for (unsigned n = 0; n < kKeys / 8; ++n) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned query = first_query + lane / 4 + i / 2 * 8;
      const unsigned key = n * 8 + lane % 4 * 2 + i % 2;
      if (query >= s.rows.tokens || first_key + key > query || query + s.history < s.rows.tokens) continue;
      const float weight = weights[n][i] * share;
      const float threshold = 1.0F / static_cast<float>(query + 1);
      if (s.counts_low ? weight >= threshold : weight <= threshold) continue;
      const unsigned bit = query % s.history;
      or_atomic(ring + key * kHistoryWords + bit / 32, 1U << (bit % 32));
    }
  }
}

// The ring of the tile's key that this thread has becomes its state: the count, then the words.
KV_DEVICE void store_counts(const PromptScoreArguments& s, const CacheSlots& slots, unsigned slot,
                            const std::uint32_t* ring) {
  std::uint32_t count = 0;
  for (unsigned w = 0; w < (s.history + 31) / 32; ++w) {
    count += count_bits(ring[w]);
    slots.state[std::size_t{1 + w} * slots.stride + slot] = ring[w];
  }
  slots.state[slot] = count;
}

// The score of each token: the sum over all rows of its weight, reduced over the group, or the count of those that it
// made. Blocks of kPromptThreads: x over tiles of keys, y over storage heads; a warp takes sixteen queries of a tile.
template <Stored kType, unsigned kWidth>
KV_KERNEL void prompt_column_sums(PromptScoreArguments s) {
  constexpr unsigned kWarps = kPromptThreads / 32;
  KV_SHARED(Pack, keys, kKeyPacks<kWidth>);
  KV_SHARED(float, scales, kKeys);
  KV_SHARED(float, sums, kWarps * kKeys);
  KV_SHARED(std::uint32_t, rings, kKeys * kHistoryWords);
  await_previous();
  const PromptArguments& a = s.rows;
  const CacheSlots& slots = a.slots[block_y()];
  const unsigned lane = thread_x() % 32;
  const unsigned warp = thread_x() / 32;
  const unsigned first_key = block_x() * kKeys;
  load_head_rows<kType, kWidth>(slots.keys, a.key_row_bytes, a.head_dim, first_key, a.tokens, keys);
  load_scales<kType>(slots.key_scales, first_key, a.tokens, scales);
  const bool counts = s.kind == ScoreKind::kCounts;
  for (unsigned i = thread_x(); counts && i < kKeys * kHistoryWords; i += kPromptThreads) rings[i] = 0;
  sync_block();
  const unsigned hidden_from = first_key + kKeys + a.window;
  const unsigned end = a.window > 0 && hidden_from < a.tokens ? hidden_from : a.tokens;
  float columns[kKeys / 8][2] = {};
  const unsigned remembered = counts && a.tokens > s.history ? a.tokens - s.history : 0;
  const unsigned begin = first_key > remembered ? first_key : remembered;
  for (unsigned first = begin / kQueries * kQueries; first < end; first += kQueries) {
    float weights[kKeys / 8][4] = {};
    for (unsigned g = 0; g < a.group; ++g) {
      add_tile_weights<kType, kWidth>(s, keys, scales, block_y() * a.group + g, first + warp * 16, first_key, weights);
    }
    if (counts) {
      mark_hits(s, weights, first + warp * 16, first_key, rings);
      continue;
    }
    KV_UNROLL
    for (unsigned n = 0; n < kKeys / 8; ++n) {
      KV_UNROLL
      for (unsigned i = 0; i < 2; ++i) columns[n][i] += weights[n][i] + weights[n][2 + i];
    }
  }
  KV_UNROLL
  for (unsigned n = 0; n < kKeys / 8; ++n) {
    KV_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      float sum = columns[n][i];
      KV_UNROLL
      for (unsigned mask = 4; mask < 32; mask *= 2) sum += from_lane_xor(sum, mask);
      if (lane < 4) sums[warp * kKeys + n * 8 + lane * 2 + i] = sum;
    }
  }
  sync_block();
  if (thread_x() >= kKeys || first_key + thread_x() >= a.tokens) return;
  if (counts) return store_counts(s, slots, first_key + thread_x(), rings + thread_x() * kHistoryWords);
  float score = 0;
  for (unsigned w = 0; w < kWarps; ++w) score += sums[w * kKeys + thread_x()];
  if (s.reduction == ScoreReduction::kMean) score *= 1.0F / static_cast<float>(a.group);
  slots.state[first_key + thread_x()] = bits_of(score);
}

}  // namespace kvroof::cuda
