// Causal attention of a prompt on the tensor cores, with the running softmax of FlashAttention (Dao 2023): the matrix
// of weights never exists. A block makes the output of kQueries consecutive queries of one query head.
#pragma once

#include "kernels/cuda/row_factors.cuh"

namespace kvroof::cuda {

constexpr unsigned kPromptThreads = 128;  // a warp takes sixteen queries
constexpr unsigned kQueries = kPromptQueries;
constexpr unsigned kKeys = 32;            // that a block meets at once

constexpr float kHidden = -1e30F;

// What query i sees of key j.
KV_DEVICE float prompt_logit(const PromptArguments& a, float dot, unsigned query, unsigned key, float slope) {
  if (key > query || query >= a.tokens || (a.window > 0 && key + a.window <= query)) return kHidden;
  float logit = a.scale * dot;
  if (a.softcap > 0) logit = soft_capped(logit, a.softcap);
  return logit - slope * static_cast<float>(query - key);
}

constexpr unsigned kKeyGap = 1;                     // packs behind a row of keys: they spread the banks
constexpr unsigned kPairStride = kKeys / 2 + 4;     // words of a column of values; the gap spreads the banks
template <unsigned kWidth>
constexpr unsigned kKeyPacks = kKeys * (kWidth / 8 + kKeyGap);

// Rows [first, first + kKeys) of a head as factors, zeros beyond `end` and `dim`. A thread asks for several eights
// before it stores the first: the rows' addresses are read from memory, and no such load passes a store.
template <Stored kType, unsigned kWidth>
KV_DEVICE void load_head_rows(const std::byte* rows, std::uint32_t row_bytes, std::uint32_t dim, unsigned first,
                              unsigned end, Pack* out) {
  constexpr unsigned kPacks = kWidth / 8;
  constexpr unsigned kOfThread = kKeys * kPacks / kPromptThreads;
  constexpr unsigned kAtOnce = kOfThread > 8 ? 6 : kOfThread > 4 ? 4 : kOfThread;  // as registers allow
  static_assert(kOfThread % kAtOnce == 0);
  KV_UNROLL_BY(1)
  for (unsigned at = 0; at < kOfThread; at += kAtOnce) {
    Eight<kType> eights[kAtOnce] = {};
    KV_UNROLL
    for (unsigned u = 0; u < kAtOnce; ++u) {
      const unsigned i = (at + u) * kPromptThreads + thread_x();
      const unsigned r = first + i / kPacks;
      const unsigned eight = i % kPacks;
      if (r < end && eight * 8 < dim) eights[u] = load_eight<kType, true>(rows + std::size_t{r} * row_bytes, eight);
    }
    KV_UNROLL
    for (unsigned u = 0; u < kAtOnce; ++u) {
      const unsigned i = (at + u) * kPromptThreads + thread_x();
      out[i / kPacks * (kPacks + kKeyGap) + i % kPacks] = to_pack<kType>(eights[u]);
    }
  }
}

// The same, transposed: pairs of neighbouring rows of one column; column c at c · kPairStride words. A thread takes
// eight columns of two rows.
template <Stored kType, unsigned kWidth>
KV_DEVICE void load_columns(const std::byte* rows, std::uint32_t row_bytes, std::uint32_t dim, unsigned first,
                            unsigned end, std::uint32_t* out) {
  constexpr unsigned kPairs = kKeys / 2;
  constexpr unsigned kOfThread = kPairs * (kWidth / 8) / kPromptThreads;
  constexpr unsigned kAtOnce = kOfThread > 2 ? 2 : kOfThread;
  const unsigned pair = thread_x() % kPairs;
  const auto column_of = [](unsigned u) { return (u * kPromptThreads + thread_x()) / kPairs * 8; };
  KV_UNROLL_BY(1)
  for (unsigned at = 0; at < kOfThread; at += kAtOnce) {
    Eight<kType> eights[kAtOnce][2] = {};
    KV_UNROLL
    for (unsigned u = 0; u < kAtOnce * 2; ++u) {
      const unsigned eight = column_of(at + u / 2) / 8;
      const unsigned r = first + pair * 2 + u % 2;
      if (r >= end || eight * 8 >= dim) continue;
      eights[u / 2][u % 2] = load_eight<kType, true>(rows + std::size_t{r} * row_bytes, eight);
    }
    KV_UNROLL
    for (unsigned u = 0; u < kAtOnce; ++u) {
      std::uint32_t pairs[8];
      to_pairs_across<kType>(eights[u][0], eights[u][1], pairs);
      KV_UNROLL
      for (unsigned c = 0; c < 8; ++c) out[(column_of(at + u) + c) * kPairStride + pair] = pairs[c];
    }
  }
}

// The scales of int8 and int4 rows [first, first + kKeys), in shared memory.
template <Stored kType>
KV_DEVICE void load_scales(const float* scales, unsigned first, unsigned end, float* out) {
  if (kBits<kType> == 16 || thread_x() >= kKeys) return;
  out[thread_x()] = first + thread_x() < end ? scales[first + thread_x()] : 0.0F;
}

// The queries of a warp as left factors of products over sixteen elements each. Before 16-bit caches they are rounded
// already (PrepareArguments); else what rounding takes of them are factors as well.
template <Stored kType, unsigned kWidth>
struct QueryFactors {
  static constexpr bool kRests = kBits<kType> < 16;
  std::uint32_t rounded[kWidth / 16][4];
  std::uint32_t rests[kRests ? kWidth / 16 : 1][4];
};

template <Stored kType, unsigned kWidth>
KV_DEVICE void load_query_factors(const PromptArguments& a, unsigned head, unsigned first,
                                  QueryFactors<kType, kWidth>& factors) {
  const unsigned lane = thread_x() % 32;
  KV_UNROLL
  for (unsigned step = 0; step < kWidth / 16; ++step) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned query = first + lane / 4 + i % 2 * 8;
      const unsigned column = step * 16 + lane % 4 * 2 + i / 2 * 8;
      const bool there = query < a.tokens && column < a.head_dim;
      const float* q = a.q + (std::size_t{query} * a.heads + head) * a.head_dim + column;
      factors.rounded[step][i] = 0;
      if constexpr (QueryFactors<kType, kWidth>::kRests) factors.rests[step][i] = 0;
      if (!there) continue;
      if constexpr (QueryFactors<kType, kWidth>::kRests) {
        split_pair<kRowFactors<kType>>(q[0], q[1], factors.rounded[step][i], factors.rests[step][i]);
      } else {
        factors.rounded[step][i] = packed_pair<kType>(q[0], q[1]);
      }
    }
  }
}

// Logits of the warp's sixteen queries against kKeys keys in shared memory, with their scales.
template <Stored kType, unsigned kWidth>
KV_DEVICE void tile_logits(const PromptArguments& a, const QueryFactors<kType, kWidth>& factors, const Pack* keys,
                           const float* scales, unsigned first_query, unsigned first_key, float slope,
                           float (&logits)[kKeys / 8][4]) {
  const unsigned lane = thread_x() % 32;
  const auto* words = reinterpret_cast<const std::uint32_t*>(keys);
  KV_UNROLL
  for (unsigned n = 0; n < kKeys / 8; ++n) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) logits[n][i] = 0;
    KV_UNROLL
    for (unsigned step = 0; step < kWidth / 16; ++step) {
      const std::uint32_t* row = words + (n * 8 + lane / 4) * (kWidth / 2 + 4 * kKeyGap) + step * 8 + lane % 4;
      const std::uint32_t right[2] = {row[0], row[4]};
      multiply_add<kRowFactors<kType>>(logits[n], factors.rounded[step], right);
      if constexpr (QueryFactors<kType, kWidth>::kRests) {
        multiply_add<kRowFactors<kType>>(logits[n], factors.rests[step], right);
      }
    }
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      if (kBits<kType> < 16) logits[n][i] *= scales[n * 8 + lane % 4 * 2 + i % 2];
      logits[n][i] = prompt_logit(a, logits[n][i], first_query + lane / 4 + i / 2 * 8,
                                  first_key + n * 8 + lane % 4 * 2 + i % 2, slope);
    }
  }
}

// The max and the sum of the exponentials that a lane's two rows of logits have met.
struct RunningSoftmax {
  float highest[2] = {kHidden, kHidden};
  float total[2] = {0, 0};
};

// Logits of a tile become weights relative to the max by now; what was summed before shrinks by `shrink`.
KV_DEVICE void weigh_tile(float (&logits)[kKeys / 8][4], RunningSoftmax& met, float (&shrink)[2]) {
  KV_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    float top = met.highest[half];
    KV_UNROLL
    for (unsigned n = 0; n < kKeys / 8; ++n) {
      KV_UNROLL
      for (unsigned i = 0; i < 2; ++i) top = logits[n][half * 2 + i] > top ? logits[n][half * 2 + i] : top;
    }
    top = max_over(top, 4);
    shrink[half] = exp_of(met.highest[half] - top);
    met.highest[half] = top;
    float sum = 0;
    KV_UNROLL
    for (unsigned n = 0; n < kKeys / 8; ++n) {
      KV_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        float& logit = logits[n][half * 2 + i];
        logit = logit <= kHidden ? 0.0F : exp_of(logit - top);
        sum += logit;
      }
    }
    met.total[half] = met.total[half] * shrink[half] + sum_over(sum, 4);
  }
}

// Weights of keys [16 · step, 16 · step + 16) of a tile as the left factor of their product with values.
template <Stored kType>
KV_DEVICE void weight_factor(const float (&weights)[kKeys / 8][4], unsigned step, std::uint32_t (&left)[4]) {
  KV_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const float* pair = weights[2 * step + i / 2] + i % 2 * 2;
    left[i] = packed_pair<kType>(pair[0], pair[1]);
  }
}

// The same, and what rounding takes of them: the next layers round to integers, of which each is a step apart.
template <Stored kFactors>
KV_DEVICE void split_weights(const float (&weights)[kKeys / 8][4], unsigned step, std::uint32_t (&left)[4],
                             std::uint32_t (&rest)[4]) {
  KV_UNROLL
  for (unsigned i = 0; i < 4; ++i) {
    const float* pair = weights[2 * step + i / 2] + i % 2 * 2;
    split_pair<kFactors>(pair[0], pair[1], left[i], rest[i]);
  }
}

// out = shrink · out + weights · v for the tile's values in shared memory, as load_columns() leaves them, with their
// scales. Weights of quantised rows become theirs times the scale of the row.
template <Stored kType, unsigned kWidth>
KV_DEVICE void add_tile_values(float (&weights)[kKeys / 8][4], const std::uint32_t* values, const float* scales,
                               const float (&shrink)[2], float (&out)[kWidth / 8][4]) {
  constexpr bool kRests = QueryFactors<kType, kWidth>::kRests;
  const unsigned lane = thread_x() % 32;
  KV_UNROLL
  for (unsigned i = 0; kBits<kType> < 16 && i < kKeys / 8 * 4; ++i) {
    weights[i / 4][i % 4] *= scales[i / 4 * 8 + lane % 4 * 2 + i % 2];
  }
  KV_UNROLL
  for (unsigned n = 0; n < kWidth / 8; ++n) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) out[n][i] *= shrink[i / 2];
  }
  KV_UNROLL
  for (unsigned step = 0; step < kKeys / 16; ++step) {
    std::uint32_t left[4];
    std::uint32_t rest[4];
    if constexpr (kRests) {
      split_weights<kRowFactors<kType>>(weights, step, left, rest);
    } else {
      weight_factor<kRowFactors<kType>>(weights, step, left);
    }
    KV_UNROLL
    for (unsigned n = 0; n < kWidth / 8; ++n) {
      const std::uint32_t* column = values + (n * 8 + lane / 4) * kPairStride + step * 8 + lane % 4;
      const std::uint32_t right[2] = {column[0], column[4]};
      multiply_add<kRowFactors<kType>>(out[n], left, right);
      if constexpr (kRests) multiply_add<kRowFactors<kType>>(out[n], rest, right);
    }
  }
}

// The warp's sixteen rows of the output, and their log-sums where scores want them.
template <unsigned kWidth>
KV_DEVICE void store_prompt_rows(const PromptArguments& a, unsigned head, unsigned first_query,
                                 const RunningSoftmax& met, const float (&out)[kWidth / 8][4]) {
  const unsigned lane = thread_x() % 32;
  KV_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned query = first_query + lane / 4 + half * 8;
    if (query >= a.tokens) continue;
    if (a.log_sums != nullptr && lane % 4 == 0) {
      a.log_sums[std::size_t{head} * a.tokens + query] = met.highest[half] + logf(met.total[half]);
    }
    KV_UNROLL
    for (unsigned n = 0; n < kWidth / 8; ++n) {
      KV_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned column = n * 8 + lane % 4 * 2 + i;
        if (column >= a.value_dim) continue;
        a.out[(std::size_t{query} * a.heads + head) * a.value_dim + column] = out[n][half * 2 + i] / met.total[half];
      }
    }
  }
}

// Blocks of kPromptThreads: x over tiles of queries, y over query heads.
template <Stored kType, unsigned kWidth>
KV_KERNEL void prompt_attention(PromptArguments a) {
  KV_SHARED(Pack, keys, kKeyPacks<kWidth>);
  KV_SHARED(std::uint32_t, values, kWidth * kPairStride);
  KV_SHARED(float, key_scales, kKeys);
  KV_SHARED(float, value_scales, kKeys);
  await_previous();
  const unsigned head = block_y();
  const unsigned block_first = block_x() * kQueries;
  const unsigned first_query = block_first + thread_x() / 32 * 16;
  const float slope = a.alibi != nullptr ? a.alibi[head] : 0.0F;
  const CacheSlots slots = a.slots[head / a.group];
  QueryFactors<kType, kWidth> factors;
  load_query_factors(a, head, first_query, factors);
  float out[kWidth / 8][4] = {};
  RunningSoftmax met;
  for (unsigned half = 0; a.sinks != nullptr && half < 2; ++half) {  // a sink is met as a logit before all others
    met.highest[half] = a.sinks[head];
    met.total[half] = 1;
  }
  const unsigned end = block_first + kQueries < a.tokens ? block_first + kQueries : a.tokens;
  const unsigned begin = a.window > 0 && block_first + 1 > a.window ? (block_first + 1 - a.window) / kKeys * kKeys : 0;
  for (unsigned first_key = begin; first_key < end; first_key += kKeys) {
    sync_block();
    load_head_rows<kType, kWidth>(slots.keys, a.key_row_bytes, a.head_dim, first_key, end, keys);
    load_columns<kType, kWidth>(slots.values, a.value_row_bytes, a.value_dim, first_key, end, values);
    load_scales<kType>(slots.key_scales, first_key, end, key_scales);
    load_scales<kType>(slots.value_scales, first_key, end, value_scales);
    sync_block();
    float logits[kKeys / 8][4];
    tile_logits(a, factors, keys, key_scales, first_query, first_key, slope, logits);
    float shrink[2];
    weigh_tile(logits, met, shrink);
    add_tile_values<kType, kWidth>(logits, values, value_scales, shrink, out);
  }
  store_prompt_rows<kWidth>(a, head, first_query, met, out);
}

}  // namespace kvroof::cuda
