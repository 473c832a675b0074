// Decode attention over the slots of an evicted, ragged cache, on the tensor cores: split over the slots, one pass over
// k and v for all query heads of a group, exact log-sum-exp.
//
// A unit is one KV head of one sequence (and, where more than kMostGroup query heads share it, one pass over kMostGroup
// of them). Each block takes a range of all slots, one split a unit, and each of its warps every fourth tile of a split
// with a running softmax of its own (Dao 2023), so that warps wait for nothing but memory. A unit of several splits is
// combined by the block that finishes the last of them. Softmax does not depend on the order of slots, so a token
// may lie in any of them: what matters about a slot is its position.
//
// Rows go from memory to registers in the order in which they are factors (attention_rows.cuh). The products
// are S^T [queries, slots] = q · k^T, with the rounded queries in rows 0 … 7 and what rounding took in rows 8 … 15, and
// O^T [elements, queries] = v^T · S with the weights and what rounding takes of them one after the other: a lane's
// columns of the first are its rows of the second, and the sums have the digits of floats, not of factors.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/kernels.hpp"
#include "kernels/cuda/score_slots.cuh"

namespace kvroof::cuda {

// Blocks of a multiprocessor, at least: of int4 rows, where more is computed for each byte, one more.
template <Stored kType, unsigned kWidth>
constexpr unsigned kAttentionBlocks = kWidth > 128 ? 2 : kType == Stored::kInt4 ? 4 : 3;

// What a warp has met of a split: the lane's query head is lane / 4, its share of the total is not summed over the four
// lanes of that head. Tile 4j + m of the output has elements 2m (row lane / 4) and 2m + 1 (row lane / 4 + 8) of the
// lane's j-th eight of a row of values.
template <unsigned kWidth>
struct WarpSums {
  float highest = kNever;
  float total = 0;
  float out[kWidth / 16][4] = {};
};

// The unit's queries as left factors into `queries` [kWidth / 32 · 2 · 32]: those of two products a lane for every 32
// columns. Before 16-bit caches they are rounded already (PrepareArguments), and so exact: their rests are zero.
template <Stored kType, unsigned kWidth>
KV_DEVICE void split_queries(const AttentionArguments& a, const AttentionUnit& unit, Pack* queries) {
  for (unsigned i = thread_x(); i < kWidth; i += kAttentionThreads) {
    const unsigned lane = i % 32;
    const unsigned head = lane / 4;
    const unsigned column = eight_of<kType, kKeyEights<kWidth>>(i / 32, lane % 4, 4) * 8;
    float x[8] = {};
    if (head < unit.query_heads && column < a.head_dim) {
      load_floats(a.q + (std::size_t{unit.sequence} * a.heads + unit.first_query_head + head) * a.head_dim + column, x);
    }
    std::uint32_t pairs[4];
    std::uint32_t rests[4];
    KV_UNROLL
    for (unsigned p = 0; p < 4; ++p) {
      const unsigned first = first_of_pair<kType>(p);
      split_pair<kDecodeFactors<kType>>(x[first], x[first + kPairStep<kType>], pairs[p], rests[p]);
    }
    queries[i / 32 * 64 + lane] = {pairs[0], rests[0], pairs[1], rests[1]};
    queries[i / 32 * 64 + 32 + lane] = {pairs[2], rests[2], pairs[3], rests[3]};
  }
}

// q · k of the lane's query head and slots 8n + 2c and 8n + 2c + 1 of the tile, c = lane mod 4.
template <Stored kType, unsigned kWidth>
KV_DEVICE void key_products(const Pack* queries, const Keys<kType, kWidth>& keys,
                            float (&products)[kTileSlots<kType, kWidth> / 8][2]) {
  constexpr unsigned kEights = kTileSlots<kType, kWidth> / 8;
  const unsigned lane = thread_x() % 32;
  float sums[kEights][4] = {};
  KV_UNROLL
  for (unsigned j = 0; j < kKeyEights<kWidth>; ++j) {
    const Pack first = queries[j * 64 + lane];
    const Pack second = queries[j * 64 + 32 + lane];
    const std::uint32_t left[2][4] = {{first.x, first.y, first.z, first.w}, {second.x, second.y, second.z, second.w}};
    KV_UNROLL
    for (unsigned n = 0; n < kEights; ++n) {
      std::uint32_t pairs[4];
      to_decode_pairs<kType>(keys.rows[n][j], pairs);
      KV_UNROLL
      for (unsigned step = 0; step < 2; ++step) {
        const std::uint32_t right[2] = {pairs[2 * step], pairs[2 * step + 1]};
        multiply_add<kDecodeFactors<kType>>(sums[n], left[step], right);
      }
    }
  }
  KV_UNROLL
  for (unsigned n = 0; n < kEights; ++n) {
    products[n][0] = sums[n][0] + sums[n][2];
    products[n][1] = sums[n][1] + sums[n][3];
  }
}

// Calls body(logit, slot of the tile) for each logit of the lane.
template <unsigned kEights, class Body>
KV_DEVICE void for_logits(float (&logits)[kEights][2], const Body& body) {
  KV_UNROLL
  for (unsigned i = 0; i < kEights * 2; ++i) body(logits[i / 2][i % 2], i / 2 * 8 + thread_x() % 4 * 2 + i % 2);
}

// What the lane's query head makes of a split's products.
struct LogitRule {
  float slope = 0;          // of ALiBi
  std::uint32_t query = 0;  // position
  float* kept = nullptr;    // where the logits of the split's slots go, unit_heads apart; null: nowhere
};

KV_DEVICE LogitRule rule_of(const AttentionArguments& a, const AttentionUnit& unit, const KvSplit& split) {
  const unsigned head = thread_x() % 32 / 4;
  LogitRule rule;
  if (a.alibi != nullptr && head < unit.query_heads) rule.slope = a.alibi[unit.first_query_head + head];
  if (needs_positions(a)) rule.query = a.query[unit.sequence];
  if (unit.slots.logits != nullptr && head < a.unit_heads) {
    rule.kept = unit.slots.logits + std::size_t{split.first} * a.unit_heads + head;
  }
  return rule;
}

// Products become logits, which policies may keep; `at` is the tile's first slot of the split's `slots`. What few
// models or tiles need is asked for once a tile.
template <Stored kType, unsigned kWidth>
KV_DEVICE void finish_logits(const AttentionArguments& a, const LogitRule& rule, unsigned at, unsigned slots,
                             const Keys<kType, kWidth>& keys, float (&logits)[kTileSlots<kType, kWidth> / 8][2]) {
  const float scale = a.scale * keys.scale;
  for_logits(logits, [&](float& logit, unsigned slot) {
    logit *= kBits<kType> < 16 ? from_lane(scale, slot) : a.scale;
  });
  if (a.softcap > 0) {
    for_logits(logits, [&](float& logit, unsigned) { logit = soft_capped(logit, a.softcap); });
  }
  if (needs_positions(a)) {
    for_logits(logits, [&](float& logit, unsigned slot) {
      logit = placed_logit(a, logit, from_lane(keys.position, slot), rule.query, rule.slope);
    });
  }
  const unsigned count = slots - at;
  if (count < kTileSlots<kType, kWidth>) {
    for_logits(logits, [&](float& logit, unsigned slot) { logit = slot < count ? logit : kNever; });
  }
  if (rule.kept == nullptr) return;
  float* kept = rule.kept + std::size_t{at} * a.unit_heads;
  for_logits(logits, [&](float& logit, unsigned slot) {
    if (slot < count) kept[slot * a.unit_heads] = logit;
  });
}

template <Stored kType>
constexpr auto kLifted = static_cast<float>(kLiftedBits<kType>);

// Logits become weights relative to the highest by now; returns what those before are to be multiplied with.
template <Stored kType, unsigned kEights, unsigned kWidth>
KV_DEVICE float weigh_logits(float (&logits)[kEights][2], WarpSums<kWidth>& met) {
  constexpr float kLog2E = 1.44269504F;
  float highest = met.highest;
  for_logits(logits, [&](float logit, unsigned) { highest = higher_of(highest, logit); });
  highest = max_over(highest, 4);
  const float shrink = exp_of(met.highest - highest);
  met.highest = highest;
  met.total *= shrink;
  const float top = (highest <= kNever ? 0.0F : highest * kLog2E) - kLifted<kType>;  // no weight where none is seen
  for_logits(logits, [&](float& logit, unsigned) {
    logit = exp2_of(logit * kLog2E - top);
    met.total += logit;
  });
  return shrink;
}

// The output's columns are other heads than the lane's own: 2c and 2c + 1, c = lane mod 4.
template <unsigned kWidth>
KV_DEVICE void shrink_output(float shrink, WarpSums<kWidth>& met) {
  if (lanes_where(shrink != 1.0F) == 0) return;
  const unsigned own = thread_x() % 4 * 8;
  const float shrinks[2] = {from_lane(shrink, own), from_lane(shrink, own + 4)};
  KV_UNROLL
  for (unsigned i = 0; i < kWidth / 16 * 4; ++i) met.out[i / 4][i % 4] *= shrinks[i % 2];
}

// out += weights · v.
template <Stored kType, unsigned kWidth>
KV_DEVICE void add_values(const Values<kType, kWidth>& values,
                          float (&weights)[kTileSlots<kType, kWidth> / 8][2], WarpSums<kWidth>& met) {
  constexpr Stored kFactors = kDecodeFactors<kType>;
  KV_UNROLL
  for (unsigned n = 0; n < kTileSlots<kType, kWidth> / 16; ++n) {
    std::uint32_t right[2];
    std::uint32_t rest[2];
    KV_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      float (&pair)[2] = weights[n * 2 + half];
      KV_UNROLL
      for (unsigned i = 0; i < 2; ++i) {
        if (kBits<kType> < 16) pair[i] *= from_lane(values.scale, (n * 2 + half) * 8 + thread_x() % 4 * 2 + i);
      }
      split_pair<kFactors>(pair[0], pair[1], right[half], rest[half]);
    }
    KV_UNROLL
    for (unsigned j = 0; j < kValueEights<kWidth>; ++j) {
      std::uint32_t first[8];
      std::uint32_t second[8];
      to_decode_pairs_across<kType>(values.rows[n * 4][j], values.rows[n * 4 + 1][j], first);
      to_decode_pairs_across<kType>(values.rows[n * 4 + 2][j], values.rows[n * 4 + 3][j], second);
      KV_UNROLL
      for (unsigned m = 0; m < 4; ++m) {
        const std::uint32_t left[4] = {first[2 * m], first[2 * m + 1], second[2 * m], second[2 * m + 1]};
        multiply_add<kFactors>(met.out[j * 4 + m], left, right);
        multiply_add<kFactors>(met.out[j * 4 + m], left, rest);
      }
    }
  }
}

// This warp's tiles of a split. Keys of the next tile set out while this one's values are on their way.
template <Stored kType, unsigned kWidth>
KV_DEVICE void meet_slots(const AttentionArguments& a, const AttentionUnit& unit, const KvSplit& split, Pack* queries,
                          WarpSums<kWidth>& met) {
  constexpr unsigned kTile = kTileSlots<kType, kWidth>;
  const LogitRule rule = rule_of(a, unit, split);
  // Where four blocks share the registers, those hold no places of rows: they are asked for anew.
  std::conditional_t<kAttentionBlocks<kType, kWidth> == 4, const CacheSlots&, const CacheSlots> slots = unit.slots;
  unsigned at = thread_x() / 32 * kTile;
  Keys<kType, kWidth> keys;
  load_keys(a, slots, split, at, keys);
  split_queries<kType, kWidth>(a, unit, queries);
  sync_block();
  for (; at < split.count; at += kAttentionWarps * kTile) {
    Values<kType, kWidth> values;
    load_values(a, slots, split, at, values);
    float weights[kTile / 8][2];
    key_products<kType, kWidth>(queries, keys, weights);
    finish_logits<kType, kWidth>(a, rule, at, split.count, keys, weights);
    load_keys(a, slots, split, at + kAttentionWarps * kTile, keys);
    shrink_output(weigh_logits<kType>(weights, met), met);
    add_values<kType, kWidth>(values, weights, met);
  }
}

// The sink of the lane's query head is met as a logit before all others, by one warp of one split.
template <Stored kType, unsigned kWidth>
KV_DEVICE void meet_sink(const AttentionArguments& a, const AttentionUnit& unit, WarpSums<kWidth>& met) {
  const unsigned head = thread_x() / 4;
  if (head >= unit.query_heads) return;
  met.highest = a.sinks[unit.first_query_head + head];
  met.total = thread_x() % 4 == 0 ? exp2_of(kLifted<kType>) : 0.0F;
}

// Heads whose sums the warps put into shared memory at once.
constexpr unsigned kSumHeads = 4;

// This warp's outputs of heads [first, first + kSumHeads) into `sums` [kSumHeads, kWidth].
template <Stored kType, unsigned kWidth>
KV_DEVICE void share_outputs(const WarpSums<kWidth>& met, unsigned first, Pack* sums) {
  const unsigned lane = thread_x() % 32;
  if (lane % 4 / 2 != first / kSumHeads) return;
  KV_UNROLL
  for (unsigned i = 0; i < kWidth / 32; ++i) {  // of both heads the eights of this lane
    const float (&tiles)[kWidth / 16][4] = met.out;
    const unsigned eight = eight_of<kType, kValueEights<kWidth>>(i / 2, lane / 4, 8);
    Pack* out = sums + (lane % 2 * 2 + i % 2) * (kWidth / 4) + eight * 2;
    KV_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const float (&low)[4] = tiles[i / 2 * 4 + half * 2];
      const float (&high)[4] = tiles[i / 2 * 4 + half * 2 + 1];
      out[half] = {bits_of(low[i % 2]), bits_of(low[2 + i % 2]), bits_of(high[i % 2]), bits_of(high[2 + i % 2])};
    }
  }
}

// What all warps of a block met of a query head: its highest logit and its total, and one of its outputs.
struct BlockSum {
  float highest, total, out;
};

// Column `at` of `sums` [warps, kSumHeads · kWidth] is one of head `head`; `tops` [2, warps, kMostGroup].
template <unsigned kWidth>
KV_DEVICE BlockSum join_warps(const float* tops, const float* sums, unsigned head, unsigned at) {
  BlockSum all = {tops[head], 0.0F, 0.0F};
  KV_UNROLL
  for (unsigned w = 1; w < kAttentionWarps; ++w) all.highest = higher_of(all.highest, tops[w * kMostGroup + head]);
  KV_UNROLL
  for (unsigned w = 0; w < kAttentionWarps; ++w) {
    const float shrink = exp_of(tops[w * kMostGroup + head] - all.highest);
    all.out += shrink * sums[w * kSumHeads * kWidth + at];
    all.total += shrink * tops[(kAttentionWarps + w) * kMostGroup + head];
  }
  return all;
}

// The warps' sums become those of the split, or the unit's output where it has no other split. `tops`
// [2 · warps · kMostGroup] and `sums` [warps · kSumHeads · kWidth] are shared memory.
template <Stored kType, unsigned kWidth>
KV_DEVICE void store_split(const AttentionArguments& a, const AttentionUnit& unit, const KvSplit& split,
                           const WarpSums<kWidth>& met, float* tops, Pack* sums) {
  const unsigned lane = thread_x() % 32;
  const unsigned warp = thread_x() / 32;
  const float own = sum_over(met.total, 4);
  if (lane % 4 == 0) {
    tops[warp * kMostGroup + lane / 4] = met.highest;
    tops[(kAttentionWarps + warp) * kMostGroup + lane / 4] = own;
  }
  const float lifted = exp2_of(-kLifted<kType>);
  const std::size_t place = (std::size_t{split.unit} * a.most_splits + split.index) * a.unit_heads;
  for (unsigned first = 0; first < a.unit_heads; first += kSumHeads) {
    const unsigned heads = a.unit_heads - first < kSumHeads ? a.unit_heads - first : kSumHeads;
    sync_block();
    share_outputs<kType, kWidth>(met, first, sums + warp * kSumHeads * (kWidth / 4));
    sync_block();
    for (unsigned i = thread_x(); i < heads * kWidth; i += kAttentionThreads) {
      const unsigned head = first + i / kWidth;
      const unsigned column = i % kWidth;
      const BlockSum all = join_warps<kWidth>(tops, reinterpret_cast<const float*>(sums), head, i);
      if (split.splits > 1) {
        a.split_out[(place + head) * kWidth + column] = all.out * lifted;
        if (column != 0) continue;
        a.split_max[place + head] = all.highest;
        a.split_sum[place + head] = all.total * lifted;
      } else if (head < unit.query_heads) {
        const std::size_t row = std::size_t{unit.sequence} * a.heads + unit.first_query_head + head;
        if (column < a.value_dim) a.out[row * a.value_dim + column] = all.out / all.total;
        if (column == 0) {
          a.log_sums[std::size_t{split.unit} * a.unit_heads + head] = all.highest + logf(all.total * lifted);
        }
      }
    }
  }
}

// Has the rows of each warp's first tile of the split to come brought to the second-level cache, a lane every 32nd
// line.
template <Stored kType, unsigned kWidth>
KV_DEVICE void prefetch_next_split(const AttentionArguments& a, ItemRange range) {
  KvSplit split;
  const unsigned own = thread_x() / 32 * kTileSlots<kType, kWidth>;
  if (!next_split(a, range, split) || own >= split.count) return;
  const unsigned rest = split.count - own;
  const unsigned count = rest < kTileSlots<kType, kWidth> ? rest : kTileSlots<kType, kWidth>;
  const CacheSlots& slots = a.units[split.unit].slots;
  const std::size_t row = split.first + own;
  constexpr unsigned kMostBytes = kTileSlots<kType, kWidth> * kWidth * kBits<kType> / 8;
  KV_UNROLL
  for (unsigned at = thread_x() % 32 * 128; at < kMostBytes; at += 32 * 128) {
    if (at < count * a.key_row_bytes) prefetch(slots.keys + row * a.key_row_bytes + at);
    if (at < count * a.value_row_bytes) prefetch(slots.values + row * a.value_row_bytes + at);
  }
}

static_assert(kScoreThreads == kAttentionThreads);
template <bool kScores>
using DecodeArguments = std::conditional_t<kScores, ScoredAttentionArguments, AttentionArguments>;

// Blocks of kAttentionThreads, blocks_of() of them. Reads k and v of every slot of every unit once. kScores: the block
// that ends a unit keeps its scores.
template <Stored kType, unsigned kWidth, bool kScores = false>
KV_KERNEL KV_RESIDENT(kAttentionThreads, (kAttentionBlocks<kType, kWidth>))
void decode_attention(DecodeArguments<kScores> a) {
  KV_SHARED(Pack, queries, kWidth * 2);
  KV_SHARED(Pack, sums, kAttentionWarps * kSumHeads * kWidth / 4);
  KV_SHARED(float, tops, kAttentionWarps * kMostGroup * 2);
  KV_SHARED(unsigned, ticket, 1);
  allow_next();
  // What lies in memory since earlier steps does not wait for the launch before; the host sent lengths before a step's
  // launches. Behind a row's end nothing is brought: it would be read for nothing.
  ItemRange range = range_of_block(a);
  prefetch_next_split<kType, kWidth>(a, range);
  await_previous();
  for (KvSplit split; next_split(a, range, split);) {
    if constexpr (kScores) prefetch_scores(a.scores, split);
    prefetch_next_split<kType, kWidth>(a, range);
    const AttentionUnit& unit = a.units[split.unit];
    WarpSums<kWidth> met;
    if (a.sinks != nullptr && split.index == 0 && thread_x() < 32) meet_sink<kType>(a, unit, met);
    meet_slots<kType, kWidth>(a, unit, split, queries, met);
    store_split<kType>(a, unit, split, met, tops, sums);
    if (!kScores && split.splits == 1) continue;
    finish_split(a.finished + split.unit, split.splits, ticket, [&] {
      if (split.splits > 1) combine_splits<kWidth>(a, unit, split, tops, reinterpret_cast<float*>(sums));
      if constexpr (kScores) score_unit(a.scores, split.unit);
    });
  }
}

}  // namespace kvroof::cuda
