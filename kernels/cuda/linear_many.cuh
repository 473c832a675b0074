// Products of a weight matrix with many vectors (a batch, a prompt) on the tensor cores; each vector is rounded to the
// type of the weights.
//
// A block makes kBlockRows rows of the result for kTile tokens. Sums over columns do not depend on their order, so a
// lane takes eight neighbouring columns of weights (16 bytes) and of vectors as its share of two products, and no
// weight passes through shared memory.
#pragma once

#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/matrix_unit.cuh"

namespace kvroof::cuda {

constexpr unsigned kBlockRows = kLinearWarps * 16;
constexpr unsigned kTileColumns = 128;                     // of the vectors, in shared memory at once
constexpr unsigned kTileStride = kTileColumns / 2 + 4;     // words of a token's columns; the gap spreads the banks

// The tokens of a block: [first, end), or with experts these places in the order of pairs.
struct TokenRange {
  unsigned first = 0, end = 0;
};

// Token i of a range, where its result goes, and where its vector lies.
KV_DEVICE unsigned out_row(const LinearArguments& a, unsigned i) {
  return a.routed.chosen == nullptr ? i : a.routed.order[i];
}
KV_DEVICE const float* vector_of(const LinearArguments& a, unsigned i) {
  return a.x + std::size_t{out_row(a, i) / a.routed.share} * a.x_row;
}

// Columns [first, first + kTileColumns) of the tile's tokens, rounded, as pairs; zeros beyond the ends.
template <Stored kType, unsigned kTile>
KV_DEVICE void load_tile(const LinearArguments& a, const float* norms, TokenRange tokens, unsigned first,
                         std::uint32_t* tile) {
  for (unsigned i = thread_x(); i < kTile * kTileColumns / 2; i += kLinearThreads) {
    const unsigned t = i / (kTileColumns / 2);
    const unsigned column = first + i % (kTileColumns / 2) * 2;
    float pair[2] = {0, 0};
    KV_UNROLL
    for (unsigned j = 0; j < 2; ++j) {
      if (tokens.first + t >= tokens.end || column + j >= a.w.cols) continue;
      const float2_t norm = {norms[2 * t], norms[2 * t + 1]};
      pair[j] = normed<kType>(a, norm, column + j, vector_of(a, tokens.first + t)[column + j]);
    }
    tile[t * kTileStride + i % (kTileColumns / 2)] = packed_pair<kType>(pair[0], pair[1]);
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

template <Stored kType, unsigned kTile>
KV_DEVICE void multiply_tile(const DeviceMatrix& w, std::uint32_t row, unsigned first, const std::uint32_t* tile,
                             float (&sums)[kTile / 8][4]) {
  const unsigned lane = thread_x() % 32;
  KV_UNROLL_BY(2)
  for (unsigned at = 0; at < kTileColumns; at += 32) {
    Eight<kType> rows[2];
    load_rows<kType, (kTile > 16)>(w, row, first + at + lane % 4 * 8, rows);
    KV_UNROLL
    for (unsigned n = 0; n < kTile / 8; ++n) {
      const std::uint32_t* x = tile + (n * 8 + lane / 4) * kTileStride + at / 2 + lane % 4 * 4;
      KV_UNROLL
      for (unsigned s = 0; s < 2; ++s) {
        const std::uint32_t left[4] = {rows[0].words[2 * s], rows[1].words[2 * s], rows[0].words[2 * s + 1],
                                       rows[1].words[2 * s + 1]};
        const std::uint32_t right[2] = {x[2 * s], x[2 * s + 1]};
        multiply_add<kType>(sums[n], left, right);
      }
    }
  }
}

// Which kBlockRows rows of a matrix a block makes; where heads have matrices of their own, `a` becomes what is the
// block's head's.
KV_DEVICE unsigned row_block(LinearArguments& a) {
  if (a.heads.count == 0) return block_x();
  const unsigned blocks = (a.w.rows + kBlockRows - 1) / kBlockRows;
  take_head(a, block_x() / blocks);
  return block_x() % blocks;
}

// The block's rows for its tokens; `tile` [kTile · kTileStride], `norms` [kTile · 2] and `scratch` are shared memory.
template <Stored kType, unsigned kTile>
KV_DEVICE void many_products(LinearArguments& a, std::uint32_t* tile, float* norms, float* scratch) {
  const unsigned lane = thread_x() % 32;
  TokenRange tokens = {block_y() * kTile, a.tokens};
  if (a.routed.chosen != nullptr) {
    if (block_y() >= *a.routed.tile_count) return;
    const ExpertTile pairs = a.routed.tiles[block_y()];
    take_expert(a, pairs.expert);
    tokens = {pairs.first, pairs.first + pairs.count};
  }
  const std::uint32_t row = row_block(a) * kBlockRows + thread_x() / 32 * 16 + lane / 4;
  for (unsigned t = 0; t < kTile && a.norm != NormMode::kNone && tokens.first + t < tokens.end; ++t) {
    const float2_t norm = norm_of(vector_of(a, tokens.first + t), a.w.cols, a.norm, a.norm_eps, scratch);
    if (thread_x() == 0) {
      norms[2 * t] = norm.x;
      norms[2 * t + 1] = norm.y;
    }
  }
  float sums[kTile / 8][4] = {};
  float ups[kTile / 8][4] = {};
  for (unsigned first = 0; first < a.w.cols; first += kTileColumns) {
    sync_block();
    load_tile<kType, kTile>(a, norms, tokens, first, tile);
    sync_block();
    multiply_tile<kType, kTile>(a.w, row, first, tile, sums);
    if (a.up.rows > 0) multiply_tile<kType, kTile>(a.up, row, first, tile, ups);
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

// Blocks of kLinearThreads: x over kBlockRows rows (of each head), y over kTile tokens, or over tiles of pairs.
template <Stored kType, unsigned kTile>
KV_KERNEL void linear_many(LinearArguments a) {
  KV_SHARED(std::uint32_t, tile, kTile * kTileStride);
  KV_SHARED(float, norms, kTile * 2);
  KV_SHARED(float, scratch, kLinearWarps);
  await_previous();
  many_products<kType, kTile>(a, tile, norms, scratch);
}

}  // namespace kvroof::cuda
