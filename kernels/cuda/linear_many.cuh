// Products of a weight matrix with many vectors (a batch, a prompt) on the tensor cores; each vector is rounded to the
// type of the weights.
//
// A block makes kRowsOfBlock rows of the result for kTile tokens. Where a matrix has too few rows for all
// multiprocessors, kSplits warps share the columns of the same rows, and add up what they have in their order.
//
// A sum over columns may take them in any order, so a lane takes eight neighbouring columns of weights (16 bytes) and
// of vectors as its share of two products, and no weight passes through shared memory.
#pragma once

#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/matrix_unit.cuh"

namespace kvroof::cuda {

template <unsigned kSplits>
constexpr unsigned kRowsOfBlock = kLinearWarps / kSplits * 16;
constexpr unsigned kBlockRows = kRowsOfBlock<1>;
constexpr unsigned kTileColumns = 128;                     // of the vectors, in shared memory at once
constexpr unsigned kTilePacks = kTileColumns / 8;          // of a token's columns
constexpr unsigned kTileStride = kTilePacks + 4;           // packs; the gap spreads the banks for reads of 16 bytes
constexpr unsigned kTilesAhead = 2;                        // whose weights are on their way to the second-level cache

// The tokens of a block: [first, end), or with experts these places in the order of pairs.
struct TokenRange {
  unsigned first = 0, end = 0;
};

// Token i of a range, where its result goes, and where its vector lies.
KV_DEVICE unsigned out_row(const LinearArguments& a, unsigned i) {
  return a.routed.chosen == nullptr ? i : a.routed.order[i];
}
KV_DEVICE const float* vector_of(const LinearArguments& a, unsigned i) {
  const unsigned row = a.routed.chosen == nullptr ? i : a.routed.order[i] / a.routed.share;
  return a.x + std::size_t{row} * a.x_row;
}

// Columns [first, first + kTileColumns) of the tile's tokens, rounded; zeros beyond the ends. A thread asks for all
// that it loads at once.
template <Stored kType, unsigned kTile>
KV_DEVICE void load_tile(const LinearArguments& a, const float* norms, TokenRange tokens, unsigned first, Pack* tile) {
  constexpr unsigned kOfThread = kTile * kTilePacks / kLinearThreads;
  constexpr unsigned kStep = kLinearThreads / kTilePacks;  // tokens
  const unsigned own = thread_x() / kTilePacks;
  const unsigned column = first + thread_x() % kTilePacks * 8;
  const unsigned count = column < a.w.cols ? tokens.end - tokens.first : 0;
  float eights[kOfThread][8] = {};
  NormColumns<kType> columns;
  if (own < count) columns = load_norm_columns<kType>(a, column);
  KV_UNROLL
  for (unsigned u = 0; u < kOfThread; ++u) {
    const unsigned t = own + u * kStep;
    if (t < count) load_floats(vector_of(a, tokens.first + t) + column, eights[u]);
  }
  KV_UNROLL
  for (unsigned u = 0; u < kOfThread; ++u) {
    const unsigned t = own + u * kStep;
    if (t < count) apply_norm<kType>(a, {norms[2 * t], norms[2 * t + 1]}, columns, eights[u]);
    tile[t * kTileStride + thread_x() % kTilePacks] = packed_eight<kType>(eights[u]);
  }
}

// This lane's eight columns of rows r and r + 8 of the warp's sixteen; zeros beyond the ends. kShared: other blocks
// take the same weights for other tokens.
template <Stored kType, bool kShared>
KV_DEVICE void load_rows(const DeviceMatrix& w, std::uint32_t row, unsigned column, Eight<kType> (&out)[2]) {
  KV_UNROLL
  for (unsigned half = 0; half < 2; ++half) {
    const std::uint32_t r = row + half * 8;
    out[half] = {};
    if (r >= w.rows || column >= w.cols) continue;
    out[half] = load_eight<kType, kShared>(w.data + std::size_t{r} * w.cols * 2, column / 8);
  }
}

// Which of the kSplits shares of columns a warp has, and which sixteen rows.
template <unsigned kSplits>
KV_DEVICE unsigned split_of_warp() { return kSplits == 1 ? 0 : thread_x() / 32 / (kLinearWarps / kSplits); }
template <unsigned kSplits>
KV_DEVICE unsigned rows_of_warp() {
  const unsigned warp = thread_x() / 32;
  return (kSplits == 1 ? warp : warp % (kLinearWarps / kSplits)) * 16;
}

template <Stored kType, unsigned kTile, unsigned kSplits>
KV_DEVICE void multiply_tile(const DeviceMatrix& w, std::uint32_t row, unsigned first, const Pack* tile,
                             float (&sums)[kTile / 8][4]) {
  const unsigned lane = thread_x() % 32;
  KV_UNROLL_BY(2)
  for (unsigned at = split_of_warp<kSplits>() * 32; at < kTileColumns; at += 32 * kSplits) {
    Eight<kType> rows[2];
    load_rows<kType, (kTile > 16)>(w, row, first + at + lane % 4 * 8, rows);
    KV_UNROLL
    for (unsigned n = 0; n < kTile / 8; ++n) {
      const Pack x = tile[(n * 8 + lane / 4) * kTileStride + at / 8 + lane % 4];
      const std::uint32_t words[4] = {x.x, x.y, x.z, x.w};
      KV_UNROLL
      for (unsigned s = 0; s < 2; ++s) {
        const std::uint32_t left[4] = {rows[0].words[2 * s], rows[1].words[2 * s], rows[0].words[2 * s + 1],
                                       rows[1].words[2 * s + 1]};
        const std::uint32_t right[2] = {words[2 * s], words[2 * s + 1]};
        multiply_add<kType>(sums[n], left, right);
      }
    }
  }
}

// The sums of the warps that share rows, in every one of them; `shares` [kLinearThreads · kTile / 2] is shared memory.
template <unsigned kTile, unsigned kSplits>
KV_DEVICE void add_splits(float (&sums)[kTile / 8][4], float* shares) {
  constexpr unsigned kOfWarp = kTile / 2 * 32;
  const unsigned lane = thread_x() % 32;
  sync_block();
  KV_UNROLL
  for (unsigned i = 0; i < kTile / 2; ++i) shares[thread_x() / 32 * kOfWarp + i * 32 + lane] = sums[i / 4][i % 4];
  sync_block();
  KV_UNROLL
  for (unsigned i = 0; i < kTile / 2; ++i) {
    float sum = 0;
    KV_UNROLL
    for (unsigned split = 0; split < kSplits; ++split) {
      const unsigned warp = split * (kLinearWarps / kSplits) + rows_of_warp<kSplits>() / 16;
      sum += shares[warp * kOfWarp + i * 32 + lane];
    }
    sums[i / 4][i % 4] = sum;
  }
}

// Which kRows rows of a matrix a block makes; where heads have matrices of their own, `a` becomes what is the block's
// head's.
template <unsigned kRows>
KV_DEVICE unsigned row_block(LinearArguments& a) {
  if (a.heads.count == 0) return block_x();
  const unsigned blocks = (a.w.rows + kRows - 1) / kRows;
  take_head(a, block_x() / blocks);
  return block_x() % blocks;
}

// Has the weights of a warp's sixteen rows brought closer, of the tile of columns from `first` on.
KV_DEVICE void prefetch_tile(const DeviceMatrix& w, std::uint32_t warp_row, unsigned first) {
  const std::uint32_t row = warp_row + thread_x() % 32 / 2;
  const unsigned column = first + thread_x() % 2 * (kTileColumns / 2);
  if (row < w.rows && column < w.cols) prefetch(w.data + (std::size_t{row} * w.cols + column) * 2);
}

// The same of a tile of both matrices; one of the warps that share rows has it done.
template <unsigned kSplits>
KV_DEVICE void prefetch_tiles(const LinearArguments& a, std::uint32_t warp_row, unsigned first) {
  if (split_of_warp<kSplits>() > 0) return;
  prefetch_tile(a.w, warp_row, first);
  if (a.up.rows > 0) prefetch_tile(a.up, warp_row, first);
}

// The norms of the block's tokens, a warp a token; into `norms` [kTile · 2].
template <unsigned kTile>
KV_DEVICE void norm_tokens(const LinearArguments& a, TokenRange tokens, float* norms) {
  if (a.norm == NormMode::kNone) return;
  for (unsigned t = thread_x() / 32; t < kTile && tokens.first + t < tokens.end; t += kLinearWarps) {
    const float2_t norm = norm_by(vector_of(a, tokens.first + t), a.w.cols, a.norm, a.norm_eps, thread_x() % 32, 32,
                                  [](float sum) { return sum_over(sum, 32); });
    if (thread_x() % 32 != 0) continue;
    norms[2 * t] = norm.x;
    norms[2 * t + 1] = norm.y;
  }
}

// The block's rows for its tokens; `tile` [kTile · kTileStride], `norms` [kTile · 2] and `shares` of add_splits are
// shared memory.
template <Stored kType, unsigned kTile, unsigned kSplits>
KV_DEVICE void many_products(LinearArguments& a, Pack* tile, float* norms, float* shares) {
  const unsigned lane = thread_x() % 32;
  TokenRange tokens = {block_y() * kTile, a.tokens};
  if (a.routed.chosen != nullptr) {
    if (block_y() >= *a.routed.tile_count) return;
    const ExpertTile pairs = a.routed.tiles[block_y()];
    take_expert(a, pairs.expert);
    tokens = {pairs.first, pairs.first + pairs.count};
  }
  constexpr unsigned kRows = kRowsOfBlock<kSplits>;
  const std::uint32_t warp_row = row_block<kRows>(a) * kRows + rows_of_warp<kSplits>();
  const std::uint32_t row = warp_row + lane / 4;
  norm_tokens<kTile>(a, tokens, norms);
  float sums[kTile / 8][4] = {};
  float ups[kTile / 8][4] = {};
  for (unsigned first = 0; first < a.w.cols; first += kTileColumns) {
    prefetch_tiles<kSplits>(a, warp_row, first + kTilesAhead * kTileColumns);
    sync_block();
    load_tile<kType, kTile>(a, norms, tokens, first, tile);
    sync_block();
    multiply_tile<kType, kTile, kSplits>(a.w, row, first, tile, sums);
    if (a.up.rows > 0) multiply_tile<kType, kTile, kSplits>(a.up, row, first, tile, ups);
  }
  if constexpr (kSplits > 1) {
    add_splits<kTile, kSplits>(sums, shares);
    if (a.up.rows > 0) add_splits<kTile, kSplits>(ups, shares);
    if (split_of_warp<kSplits>() > 0) return;
  }
  // Looked up anew: a register less in the loops.
  const std::uint32_t expert = a.routed.chosen != nullptr ? a.routed.tiles[block_y()].expert : 0;
  KV_UNROLL
  for (unsigned n = 0; n < kTile / 8; ++n) {
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned t = tokens.first + n * 8 + lane % 4 * 2 + i % 2;
      const std::uint32_t r = row + i / 2 * 8;
      if (t < tokens.end && r < a.w.rows) finish_product<kType>(a, r, out_row(a, t), sums[n][i], ups[n][i], expert);
    }
  }
}

// The first weights of a block set out while the launch before still runs, where it is known which they are.
template <unsigned kSplits>
KV_DEVICE void prefetch_first_tiles(const LinearArguments& a) {
  if (a.routed.chosen != nullptr || a.heads.count > 0) return;
  const std::uint32_t warp_row = block_x() * kRowsOfBlock<kSplits> + rows_of_warp<kSplits>();
  for (unsigned tile = 0; tile < kTilesAhead; ++tile) prefetch_tiles<kSplits>(a, warp_row, tile * kTileColumns);
}

// Blocks of kLinearThreads: x over kRowsOfBlock<kSplits> rows (of each head), y over kTile tokens, or over tiles of
// pairs.
template <Stored kType, unsigned kTile, unsigned kSplits>
KV_KERNEL KV_RESIDENT(kLinearThreads, 2) void linear_many(LinearArguments a) {
  KV_SHARED(Pack, tile, kTile * kTileStride);
  KV_SHARED(float, norms, kTile * 2);
  KV_SHARED(float, shares, kSplits > 1 ? kLinearThreads * kTile / 2 : 1);
  prefetch_first_tiles<kSplits>(a);
  await_previous();
  many_products<kType, kTile, kSplits>(a, tile, norms, shares);
}

}  // namespace kvroof::cuda
