// Attention over latent rows (multi-head latent attention, DeepSeek-V2, arXiv:2405.04434, absorbed) on the tensor
// cores: all query heads share one row a token, whose leading elements are its v.
//
// A block takes kLatentHeads query heads and a range of slots: a split of a decode step, or what one token of a prompt
// sees. A row comes into shared memory once, and serves as k and as v; blocks of other heads or tokens find it in the
// second-level cache. The four warps share the sum over a row's elements for the logits, and the columns of the output.
#pragma once

#include "kernels/cuda/attention_splits.cuh"
#include "kernels/cuda/kernels.hpp"
#include "kernels/cuda/prompt_attention.cuh"

namespace kvroof::cuda {

constexpr unsigned kRowWords = kLatentWidth / 2 + 4;                         // of a row; the gap spreads the banks
constexpr unsigned kLatentSteps = kLatentWidth / 16 / kAttentionWarps;       // products of a warp for a logit
constexpr unsigned kLatentColumns = kLatentValue / kAttentionWarps;          // of the output, of a warp
static_assert(kAttentionThreads == kPromptThreads && kLatentWidth % (16 * kAttentionWarps) == 0);

// The type of the factors: integers of 8 bits are exact in half precision.
template <Stored kType>
constexpr Stored kFactors = kType == Stored::kBF16 ? Stored::kBF16 : Stored::kF16;

// The heads of a block, and what they meet.
struct LatentTask {
  CacheSlots slots;
  std::uint32_t row = 0;         // of q
  std::uint32_t first_head = 0;
  std::uint32_t heads = 0;       // 1 … kLatentHeads
  std::uint32_t query = 0;       // position
  std::uint32_t first = 0;       // slot
  std::uint32_t count = 0;       // slots
};

struct LatentSums {
  RunningSoftmax met;
  float out[kLatentColumns / 8][4] = {};  // of this warp's columns, relative to the max by now
};

// This warp's share of the queries as left factors.
template <Stored kType>
KV_DEVICE void load_latent_queries(const LatentArguments& a, const LatentTask& task,
                                   std::uint32_t (&factors)[kLatentSteps][4]) {
  const unsigned lane = thread_x() % 32;
  KV_UNROLL
  for (unsigned step = 0; step < kLatentSteps; ++step) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned head = lane / 4 + i % 2 * 8;
      const unsigned column = (thread_x() / 32 * kLatentSteps + step) * 16 + lane % 4 * 2 + i / 2 * 8;
      const bool there = head < task.heads && column < a.head_dim;
      const float* q = a.q + (std::size_t{task.row} * a.heads + task.first_head + head) * a.head_dim + column;
      const Pair pair = there ? load_pair(q) : Pair{0, 0};
      factors[step][i] = packed_pair<kFactors<kType>>(float_of(pair.x), float_of(pair.y));
    }
  }
}

// Rows of slots [first, first + count) as factors; zeros beyond the ends. A thread asks for nine eights before it
// stores the first.
template <Stored kType>
KV_DEVICE void load_latent_rows(const LatentArguments& a, const CacheSlots& slots, unsigned first, unsigned count,
                                Pack* tile) {
  constexpr unsigned kEights = kLatentWidth / 8;
  constexpr unsigned kOfThread = kKeys * kEights / kAttentionThreads;
  constexpr unsigned kAtOnce = 9;
  static_assert(kOfThread % kAtOnce == 0);
  KV_UNROLL_BY(1)
  for (unsigned at = 0; at < kOfThread; at += kAtOnce) {
    Eight<kType> stored[kAtOnce] = {};
    KV_UNROLL
    for (unsigned u = 0; u < kAtOnce; ++u) {
      const unsigned i = (at + u) * kAttentionThreads + thread_x();
      const unsigned row = i / kEights;
      if (row >= count || i % kEights * 8 >= a.head_dim) continue;
      stored[u] = load_eight<kType, true>(slots.keys + std::size_t{first + row} * a.key_row_bytes, i % kEights);
    }
    KV_UNROLL
    for (unsigned u = 0; u < kAtOnce; ++u) {
      const unsigned i = (at + u) * kAttentionThreads + thread_x();
      Pack& out = tile[i / kEights * (kRowWords / 4) + i % kEights];
      if constexpr (kBits<kType> == 16) {
        out = {stored[u].words[0], stored[u].words[1], stored[u].words[2], stored[u].words[3]};
      } else {
        float x[8];
        to_floats<kType>(stored[u], x);
        out = packed_eight<kFactors<kType>>(x);
      }
    }
  }
}

// Products of the tile's rows with the block's heads, in every warp; `shares` is shared memory for the warps' sums.
template <Stored kType>
KV_DEVICE void latent_products(const LatentArguments& a, const std::uint32_t (&factors)[kLatentSteps][4],
                               const std::uint32_t* rows, float* shares, float (&products)[kKeys / 8][4]) {
  const unsigned lane = thread_x() % 32;
  const unsigned warp = thread_x() / 32;
  float sums[kKeys / 8][4] = {};
  KV_UNROLL
  for (unsigned step = 0; step < kLatentSteps; ++step) {
    const unsigned column = (warp * kLatentSteps + step) * 16;
    if (column >= a.head_dim) continue;
    KV_UNROLL
    for (unsigned n = 0; n < kKeys / 8; ++n) {
      const std::uint32_t* row = rows + (n * 8 + lane / 4) * kRowWords + column / 2 + lane % 4;
      const std::uint32_t right[2] = {row[0], row[4]};
      multiply_add<kFactors<kType>>(sums[n], factors[step], right);
    }
  }
  constexpr unsigned kOfWarp = kKeys / 8 * 4 * 32;
  KV_UNROLL
  for (unsigned i = 0; i < kKeys / 8 * 4; ++i) shares[warp * kOfWarp + i * 32 + lane] = sums[i / 4][i % 4];
  sync_block();
  KV_UNROLL
  for (unsigned i = 0; i < kKeys / 8 * 4; ++i) {
    float sum = 0;
    KV_UNROLL
    for (unsigned w = 0; w < kAttentionWarps; ++w) sum += shares[w * kOfWarp + i * 32 + lane];
    products[i / 4][i % 4] = sum;
  }
}

// Products become logits, which policies may keep; `slot` counts from the tile's first, of which `count` are there.
// Scales and positions are asked for before the first logit is stored.
template <Stored kType>
KV_DEVICE void finish_latent_logits(const LatentArguments& a, const LatentTask& task, unsigned first, unsigned count,
                                    float (&logits)[kKeys / 8][4]) {
  const unsigned lane = thread_x() % 32;
  const bool placed = needs_positions(a);
  float scales[kKeys / 8][2];
  std::uint32_t positions[kKeys / 8][2];
  KV_UNROLL
  for (unsigned i = 0; i < kKeys / 4; ++i) {
    const unsigned slot = i / 2 * 8 + lane % 4 * 2 + i % 2;
    const std::size_t row = std::size_t{first} + slot;
    const bool there = slot < count;
    scales[i / 2][i % 2] = kBits<kType> < 16 && there ? task.slots.key_scales[row] : 1.0F;
    positions[i / 2][i % 2] = placed && there ? task.slots.positions[row] : task.query;
  }
  KV_UNROLL
  for (unsigned n = 0; n < kKeys / 8; ++n) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned slot = n * 8 + lane % 4 * 2 + i % 2;
      const unsigned head = lane / 4 + i / 2 * 8;
      if (slot >= count) {
        logits[n][i] = kHidden;
        continue;
      }
      const bool sloped = a.alibi != nullptr && head < task.heads;
      logits[n][i] = finished_logit(a, logits[n][i] * scales[n][i % 2], positions[n][i % 2], task.query,
                                    sloped ? a.alibi[task.first_head + head] : 0.0F);
      const bool keeps = task.slots.logits != nullptr && thread_x() / 32 == n;
      if (keeps) task.slots.logits[(std::size_t{first} + slot) * kLatentHeads + head] = logits[n][i];
    }
  }
}

// Weights times the scales of quantised rows are factors of f16, which has nothing below 6e-8: small rows and far tails
// would be lost. Sums of the output are kept so many times too large; no factor overflows with elements up to 7,000.
template <Stored kType>
constexpr float kLift = kType == Stored::kInt8 ? 1024.0F : kType == Stored::kInt4 ? 64.0F : 1.0F;

// out = shrink · out + kLift · weights · v for this warp's columns.
template <Stored kType>
KV_DEVICE void add_latent_values(const LatentArguments& a, const LatentTask& task, unsigned first, unsigned count,
                                 const std::uint32_t* rows, float (&weights)[kKeys / 8][4], const float (&shrink)[2],
                                 LatentSums& sums) {
  const unsigned lane = thread_x() % 32;
  if constexpr (kBits<kType> < 16) {
    KV_UNROLL
    for (unsigned i = 0; i < kKeys / 8 * 4; ++i) {
      const unsigned slot = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const float scale = slot < count ? task.slots.key_scales[first + slot] : 0.0F;
      const float factor = weights[i / 4][i % 4] * (kLift<kType> * scale);
      weights[i / 4][i % 4] = factor > kLargestF16 ? kLargestF16 : factor;
    }
  }
  const auto* halves = reinterpret_cast<const std::uint16_t*>(rows) + thread_x() / 32 * kLatentColumns + lane / 4;
  std::uint32_t left[kKeys / 16][4];
  KV_UNROLL
  for (unsigned step = 0; step < kKeys / 16; ++step) weight_factor<kFactors<kType>>(weights, step, left[step]);
  KV_UNROLL
  for (unsigned n = 0; n < kLatentColumns / 8; ++n) {
    if (thread_x() / 32 * kLatentColumns + n * 8 >= a.value_dim) continue;
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) sums.out[n][i] *= shrink[i / 2];
    KV_UNROLL
    for (unsigned step = 0; step < kKeys / 16; ++step) {
      std::uint32_t right[2];
      KV_UNROLL
      for (unsigned j = 0; j < 2; ++j) {
        const std::uint16_t* pair = halves + (step * 16 + lane % 4 * 2 + j * 8) * 2 * kRowWords + n * 8;
        right[j] = pair[0] | static_cast<std::uint32_t>(pair[2 * kRowWords]) << 16;
      }
      multiply_add<kFactors<kType>>(sums.out[n], left[step], right);
    }
  }
}

// Has rows [first, first + count) brought to the second-level cache; they lie behind each other.
KV_DEVICE void prefetch_latent_rows(const LatentArguments& a, const CacheSlots& slots, unsigned first, unsigned count) {
  const std::byte* const rows = slots.keys + std::size_t{first} * a.key_row_bytes;
  KV_UNROLL_BY(1)
  for (std::size_t at = thread_x() * 128; at < std::size_t{count} * a.key_row_bytes; at += kAttentionThreads * 128) {
    prefetch(rows + at);
  }
}

template <Stored kType>
KV_DEVICE void meet_latent_rows(const LatentArguments& a, const LatentTask& task, Pack* tile, float* shares,
                                LatentSums& sums) {
  std::uint32_t factors[kLatentSteps][4];
  load_latent_queries<kType>(a, task, factors);
  const auto* rows = reinterpret_cast<const std::uint32_t*>(tile);
  for (unsigned at = 0; at < task.count; at += kKeys) {
    const unsigned count = task.count - at < kKeys ? task.count - at : kKeys;
    sync_block();
    load_latent_rows<kType>(a, task.slots, task.first + at, count, tile);
    const unsigned left = task.count - at - count;  // the next tile sets out while this one is met
    prefetch_latent_rows(a, task.slots, task.first + at + count, left < kKeys ? left : kKeys);
    sync_block();
    float weights[kKeys / 8][4];
    latent_products<kType>(a, factors, rows, shares, weights);
    finish_latent_logits<kType>(a, task, task.first + at, count, weights);
    float shrink[2];
    weigh_tile(weights, sums.met, shrink);
    add_latent_values<kType>(a, task, task.first + at, count, rows, weights, shrink, sums);
  }
}

// Calls store(head of the block, column, sum) for what this lane has of the output.
template <Stored kType, class Store>
KV_DEVICE void for_latent_outputs(const LatentArguments& a, const LatentSums& sums, const Store& store) {
  const unsigned lane = thread_x() % 32;
  KV_UNROLL
  for (unsigned n = 0; n < kLatentColumns / 8; ++n) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned column = thread_x() / 32 * kLatentColumns + n * 8 + lane % 4 * 2 + i % 2;
      if (column < a.value_dim) store(lane / 4 + i / 2 * 8, i / 2, column, sums.out[n][i] / kLift<kType>);
    }
  }
}

template <Stored kType>
KV_DEVICE void store_latent_split(const LatentArguments& a, std::size_t split, const LatentSums& sums) {
  for_latent_outputs<kType>(a, sums, [&](unsigned head, unsigned, unsigned column, float sum) {
    a.split_out[(split * kLatentHeads + head) * kLatentValue + column] = sum;
  });
  if (thread_x() >= 32 || thread_x() % 4 != 0) return;
  KV_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const std::size_t at = split * kLatentHeads + thread_x() / 4 + half * 8;
    a.split_max[at] = sums.met.highest[half];
    a.split_sum[at] = sums.met.total[half];
  }
}

template <Stored kType>
KV_DEVICE void store_latent_rows(const LatentArguments& a, const LatentTask& task, const LatentSums& sums) {
  for_latent_outputs<kType>(a, sums, [&](unsigned head, unsigned half, unsigned column, float sum) {
    if (head >= task.heads) return;
    a.out[(std::size_t{task.row} * a.heads + task.first_head + head) * a.value_dim + column] =
        sum / sums.met.total[half];
  });
  if (a.log_sums == nullptr || thread_x() >= 32 || thread_x() % 4 != 0) return;
  KV_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned head = thread_x() / 4 + half * 8;
    if (head >= task.heads) continue;
    a.log_sums[std::size_t{task.first_head + head} * a.tokens + task.row] =
        sums.met.highest[half] + logf(sums.met.total[half]);
  }
}

// Block b of a prompt; the tokens that see most come first.
KV_DEVICE LatentTask latent_prompt_task(const LatentArguments& a, unsigned b) {
  const unsigned passes = (a.group + kLatentHeads - 1) / kLatentHeads;
  const unsigned of_token = a.heads / a.group * passes;
  const unsigned storage = b % of_token / passes;
  const unsigned head = b % passes * kLatentHeads;
  const unsigned token = a.tokens - 1 - b / of_token;
  const unsigned first = a.window > 0 && token >= a.window ? token + 1 - a.window : 0;
  const unsigned heads = a.group - head < kLatentHeads ? a.group - head : kLatentHeads;
  return {a.prompt[storage], token, storage * a.group + head, heads, token, first, token + 1 - first};
}

// Blocks of kAttentionThreads: blocks_of() of them; of a prompt, for each token, storage head and kLatentHeads query
// heads.
template <Stored kType>
KV_KERNEL void latent_attention(LatentArguments a) {
  KV_SHARED(Pack, tile, kKeys * (kRowWords / 4));
  KV_SHARED(float, shares, kAttentionWarps * kKeys / 8 * 4 * 32);
  KV_SHARED(unsigned, ticket, 1);
  static_assert(kKeys * kRowWords >= 4 * kAttentionThreads, "combine_splits takes the tile's memory");
  await_previous();
  if (a.prompt != nullptr) {
    const LatentTask task = latent_prompt_task(a, block_x());
    LatentSums sums;
    meet_latent_rows<kType>(a, task, tile, shares, sums);
    return store_latent_rows<kType>(a, task, sums);
  }
  ItemRange range = range_of_block(a);
  for (KvSplit split; next_split(a, range, split);) {
    const AttentionUnit& unit = a.units[split.unit];
    const LatentTask task = {unit.slots, unit.sequence, unit.first_query_head, unit.query_heads,
                             a.query[unit.sequence], split.first, split.count};
    LatentSums sums;
    meet_latent_rows<kType>(a, task, tile, shares, sums);
    store_latent_split<kType>(a, std::size_t{split.unit} * a.most_splits + split.index, sums);
    finish_split(a.finished + split.unit, split.splits, ticket, [&] {
      combine_splits<kLatentValue>(a, unit, split, shares, reinterpret_cast<float*>(tile));
    });
  }
}

}  // namespace kvroof::cuda
