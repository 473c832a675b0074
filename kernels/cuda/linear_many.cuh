// Products of a weight matrix with many vectors (a batch, a prompt) on the tensor cores; each vector is rounded to the
// type of the weights.
//
// A block makes kRowsOfBlock rows of the result for kTile tokens. Where a matrix has too few rows for all
// multiprocessors, kSlices warps share the columns of the same rows; of more tokens, whose vectors every block reads,
// whole blocks do (SplitK). What they have is added up in their order.
//
// A sum over columns may take them in any order, so a lane takes eight neighbouring columns of weights (16 bytes) and
// of vectors as its share of two products, and no weight passes through shared memory.
#pragma once

#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/matrix_unit.cuh"

namespace kvroof::cuda {

template <unsigned kSlices>
constexpr unsigned kRowsOfBlock = kLinearWarps / kSlices * 16;
constexpr unsigned kBlockRows = kRowsOfBlock<1>;
constexpr unsigned kTileColumns = 128;                     // of the vectors, in shared memory at once
constexpr unsigned kTilePacks = kTileColumns / 8;          // of a token's columns
constexpr unsigned kTileStride = kTilePacks + 4;           // packs; the gap spreads the banks for reads of 16 bytes
constexpr unsigned kTilesAhead = 2;                        // whose weights are on their way to the second-level cache
static_assert(kBlockRows == kSplitRows && kTileColumns == kSplitColumns);

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

// An RMS norm's factor of a token is the product's as well: it waits until the squares of all columns are known, which
// are met on the way. Not in f16, whose range needs normed vectors. It waits whether it could have been made before or
// not: who launches leaves that out.
template <Stored kType>
KV_DEVICE bool norm_waits(const LinearArguments& a) { return kType == Stored::kBF16 && a.norm == NormMode::kRms; }

template <unsigned kTile>
constexpr unsigned kTokensOfThread = kTile * kTilePacks / kLinearThreads;
constexpr unsigned kTokenStep = kLinearThreads / kTilePacks;  // from one token of a thread to the next

// Columns [first, first + kTileColumns) of the tile's tokens, rounded; zeros beyond the ends. A thread asks for all
// that it loads at once, and adds up its squares where the norm waits.
template <Stored kType, unsigned kTile>
KV_DEVICE void load_tile(const LinearArguments& a, const float* norms, TokenRange tokens, unsigned first, Pack* tile,
                         float* squares) {
  constexpr unsigned kOfThread = kTokensOfThread<kTile>;
  constexpr unsigned kStep = kTokenStep;
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
    if (norm_waits<kType>(a)) {
      float sum = squares[u * kLinearThreads];
      KV_UNROLL
      for (unsigned i = 0; i < 8; ++i) sum += eights[u][i] * eights[u][i];
      squares[u * kLinearThreads] = sum;
    }
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

// The columns of a part, whole tiles of them.
struct ColumnRange {
  unsigned first = 0, end = 0;
};
KV_DEVICE ColumnRange columns_of_split(unsigned cols, unsigned split, unsigned splits) {
  const unsigned tiles = (cols + kTileColumns - 1) / kTileColumns;
  const unsigned end = (split + 1) * tiles / splits * kTileColumns;
  return {split * tiles / splits * kTileColumns, end < cols ? end : cols};
}

// Which of the kSlices shares of columns a warp has, and which sixteen rows.
template <unsigned kSlices>
KV_DEVICE unsigned slice_of_warp() { return kSlices == 1 ? 0 : thread_x() / 32 / (kLinearWarps / kSlices); }
template <unsigned kSlices>
KV_DEVICE unsigned rows_of_warp() {
  const unsigned warp = thread_x() / 32;
  return (kSlices == 1 ? warp : warp % (kLinearWarps / kSlices)) * 16;
}

template <Stored kType, unsigned kTile, unsigned kSlices>
KV_DEVICE void multiply_tile(const DeviceMatrix& w, std::uint32_t row, unsigned first, const Pack* tile,
                             float (&sums)[kTile / 8][4]) {
  const unsigned lane = thread_x() % 32;
  KV_UNROLL_BY(2)
  for (unsigned at = slice_of_warp<kSlices>() * 32; at < kTileColumns; at += 32 * kSlices) {
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

// The sums of the warps that share rows, in every one of them; `slices` [kLinearThreads · kTile / 2] is shared memory.
template <unsigned kTile, unsigned kSlices>
KV_DEVICE void add_slices(float (&sums)[kTile / 8][4], float* slices) {
  constexpr unsigned kOfWarp = kTile / 2 * 32;
  const unsigned lane = thread_x() % 32;
  sync_block();
  KV_UNROLL
  for (unsigned i = 0; i < kTile / 2; ++i) slices[thread_x() / 32 * kOfWarp + i * 32 + lane] = sums[i / 4][i % 4];
  sync_block();
  KV_UNROLL
  for (unsigned i = 0; i < kTile / 2; ++i) {
    float sum = 0;
    KV_UNROLL
    for (unsigned slice = 0; slice < kSlices; ++slice) {
      const unsigned warp = slice * (kLinearWarps / kSlices) + rows_of_warp<kSlices>() / 16;
      sum += slices[warp * kOfWarp + i * 32 + lane];
    }
    sums[i / 4][i % 4] = sum;
  }
}

// Which kRows rows of a matrix a block makes; where heads have matrices of their own, `a` becomes what is the block's
// head's.
template <unsigned kRows>
KV_DEVICE unsigned row_block(LinearArguments& a) {
  if (a.routed.chosen != nullptr) return block_y();
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
template <unsigned kSlices>
KV_DEVICE void prefetch_tiles(const LinearArguments& a, std::uint32_t warp_row, unsigned first) {
  if (slice_of_warp<kSlices>() > 0) return;
  prefetch_tile(a.w, warp_row, first);
  if (a.up.rows > 0) prefetch_tile(a.up, warp_row, first);
}

// The centre and the factor of each vector's norm, which all blocks of its product then find. A block of kLinearThreads
// a vector.
KV_PLAIN_KERNEL void make_norms(LinearArguments a) {
  KV_SHARED(float, scratch, kLinearWarps);
  await_previous();
  const float2_t norm = norm_of(a.x + std::size_t{block_x()} * a.x_row, a.w.cols, a.norm, a.norm_eps, scratch);
  if (thread_x() != 0) return;
  a.norms[2 * block_x()] = norm.x;
  a.norms[2 * block_x() + 1] = norm.y;
}

// The norms of the block's tokens, a warp a token where they are not made; into `norms` [kTile · 2]: centre and factor.
// One that waits has none by now.
template <Stored kType, unsigned kTile>
KV_DEVICE void norm_tokens(const LinearArguments& a, TokenRange tokens, float* norms) {
  if (a.norm == NormMode::kNone) return;
  if (a.norms != nullptr) {
    const unsigned count = 2 * (tokens.end - tokens.first);
    if (thread_x() < 2 * kTile && thread_x() < count) norms[thread_x()] = a.norms[2 * tokens.first + thread_x()];
    return;
  }
  for (unsigned t = thread_x() / 32; t < kTile && tokens.first + t < tokens.end; t += kLinearWarps) {
    float2_t norm = {0.0F, 1.0F};
    if (!norm_waits<kType>(a)) {
      norm = norm_by(vector_of(a, tokens.first + t), a.w.cols, a.norm, a.norm_eps, thread_x() % 32, 32,
                     [](float sum) { return sum_over(sum, 32); });
    }
    if (thread_x() % 32 != 0) continue;
    norms[2 * t] = norm.x;
    norms[2 * t + 1] = norm.y;
  }
}

// Squares of the tile's tokens in the block's columns, into norms[2 · token]. The threads of a token are neighbours.
template <unsigned kTile>
KV_DEVICE void add_squares(const float* squares, float* norms) {
  KV_UNROLL
  for (unsigned u = 0; u < kTokensOfThread<kTile>; ++u) {
    const float sum = sum_over(squares[u * kLinearThreads], kTilePacks);
    if (thread_x() % kTilePacks == 0) norms[2 * (thread_x() / kTilePacks + u * kTokenStep)] = sum;
  }
}

// What a warp has of a product with each of its matrices.
template <unsigned kTile>
struct ManySums {
  float w[kTile / 8][4] = {};
  float up[kTile / 8][4] = {};
};

// Adds (kAdd) or leaves the sums of a matrix to those at `place`, 16 bytes a thread at once.
template <bool kAdd, unsigned kTile>
KV_DEVICE void pass_sums(float* place, float (&sums)[kTile / 8][4]) {
  static_assert(kTile == kLargeTile);
  Pack* own = reinterpret_cast<Pack*>(place) + thread_x();
  KV_UNROLL
  for (unsigned n = 0; n < kTile / 8; ++n) {
    Pack& pack = own[n * kLinearThreads];
    float (&four)[4] = sums[n];
    if (kAdd) {
      const Pack other = pack;
      four[0] += float_of(other.x);
      four[1] += float_of(other.y);
      four[2] += float_of(other.z);
      four[3] += float_of(other.w);
    } else {
      pack = {bits_of(four[0]), bits_of(four[1]), bits_of(four[2]), bits_of(four[3])};
    }
  }
}

// Leaves this block's sums to the one that finishes the last split of the rows, which gets all of them, added in their
// order; whether this is it. `squares` are norms[2 · token].
template <unsigned kTile>
KV_DEVICE bool join_splits(const LinearArguments& a, ManySums<kTile>& sums, float* squares, unsigned* ticket) {
  const SplitK& split_k = a.split_k;
  float* all = split_k.sums + std::size_t{block_x()} * split_k.splits * kSplitFloats;
  float* own = all + std::size_t{block_y()} * kSplitFloats;
  constexpr unsigned kMatrix = kSplitRows * kLargeTile;
  pass_sums<false, kTile>(own, sums.w);
  if (a.up.rows > 0) pass_sums<false, kTile>(own + kMatrix, sums.up);
  sync_block();  // squares are other threads'
  if (thread_x() < kTile) own[2 * kMatrix + thread_x()] = squares[2 * thread_x()];
  bool last = false;
  finish_split(split_k.finished + block_x(), split_k.splits, ticket, [&] {
    last = true;
    sums = {};
    float square = 0;
    KV_UNROLL_BY(1)
    for (unsigned p = 0; p < split_k.splits; ++p) {
      float* other = all + std::size_t{p} * kSplitFloats;
      pass_sums<true, kTile>(other, sums.w);
      if (a.up.rows > 0) pass_sums<true, kTile>(other + kMatrix, sums.up);
      if (thread_x() < kTile) square += other[2 * kMatrix + thread_x()];
    }
    if (thread_x() < kTile) squares[2 * thread_x()] = square;
  });
  return last;
}

// Activations, residuals and what else there is for the rows that the block has.
template <Stored kType, unsigned kTile>
KV_DEVICE void finish_rows(const LinearArguments& a, TokenRange tokens, std::uint32_t row, const float* squares,
                           const ManySums<kTile>& sums) {
  const unsigned lane = thread_x() % 32;
  // Looked up anew: a register less in the loops.
  const std::uint32_t expert = a.routed.chosen != nullptr ? a.routed.tiles[block_x()].expert : 0;
  KV_UNROLL
  for (unsigned n = 0; n < kTile / 8; ++n) {
    float factors[2] = {1.0F, 1.0F};
    KV_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      if (!norm_waits<kType>(a)) continue;
      const float mean = squares[2 * (n * 8 + lane % 4 * 2 + i)] / static_cast<float>(a.w.cols);
      factors[i] = rsqrt_of(mean + a.norm_eps);
    }
    KV_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned t = tokens.first + n * 8 + lane % 4 * 2 + i % 2;
      const std::uint32_t r = row + i / 2 * 8;
      if (t >= tokens.end || r >= a.w.rows) continue;
      finish_product<kType>(a, r, out_row(a, t), sums.w[n][i] * factors[i % 2], sums.up[n][i] * factors[i % 2],
                            expert);
    }
  }
}

// Shared memory of a block of many_products: the tile of vectors, norms [kTile · 2], floats of add_slices.
struct ManyScratch {
  Pack* tile;
  float* norms;
  float* squares;
  float* slices;
  unsigned* ticket;
};

// The block's rows for its tokens; whether they are finished, or left to another block that shares their columns.
template <Stored kType, unsigned kTile, unsigned kSlices, bool kSplitK = kTile == kLargeTile && kSlices == 1>
KV_DEVICE bool many_products(LinearArguments& a, const ManyScratch& shared) {
  const unsigned splits = kSplitK ? a.split_k.splits : 1;
  const unsigned split = splits > 1 ? block_y() : 0;
  TokenRange tokens = {splits > 1 ? 0 : block_y() * kTile, a.tokens};
  if (a.routed.chosen != nullptr) {
    if (block_x() >= *a.routed.tile_count) return false;
    const ExpertTile pairs = a.routed.tiles[block_x()];
    take_expert(a, pairs.expert);
    tokens = {pairs.first, pairs.first + pairs.count};
  }
  constexpr unsigned kRows = kRowsOfBlock<kSlices>;
  const std::uint32_t warp_row = row_block<kRows>(a) * kRows + rows_of_warp<kSlices>();
  const std::uint32_t row = warp_row + thread_x() % 32 / 4;
  norm_tokens<kType, kTile>(a, tokens, shared.norms);
  const ColumnRange columns = columns_of_split(a.w.cols, split, splits);
  ManySums<kTile> sums;
  float* const squares = shared.squares + thread_x();
  for (unsigned u = 0; u < kTokensOfThread<kTile>; ++u) squares[u * kLinearThreads] = 0;
  for (unsigned first = columns.first; first < columns.end; first += kTileColumns) {
    prefetch_tiles<kSlices>(a, warp_row, first + kTilesAhead * kTileColumns);
    sync_block();
    load_tile<kType, kTile>(a, shared.norms, tokens, first, shared.tile, squares);
    sync_block();
    multiply_tile<kType, kTile, kSlices>(a.w, row, first, shared.tile, sums.w);
    if (a.up.rows > 0) multiply_tile<kType, kTile, kSlices>(a.up, row, first, shared.tile, sums.up);
  }
  if (norm_waits<kType>(a)) add_squares<kTile>(squares, shared.norms);
  if constexpr (kSlices > 1) {
    add_slices<kTile, kSlices>(sums.w, shared.slices);
    if (a.up.rows > 0) add_slices<kTile, kSlices>(sums.up, shared.slices);
  }
  if constexpr (kSplitK) {
    if (splits > 1 && !join_splits<kTile>(a, sums, shared.norms, shared.ticket)) return false;
  }
  sync_block();
  if (slice_of_warp<kSlices>() == 0) finish_rows<kType, kTile>(a, tokens, row, shared.norms, sums);
  return true;
}

// The first weights of a block set out while the launch before still runs, where it is known which they are.
template <unsigned kSlices>
KV_DEVICE void prefetch_first_tiles(const LinearArguments& a) {
  if (a.routed.chosen != nullptr || a.heads.count > 0) return;
  const std::uint32_t warp_row = block_x() * kRowsOfBlock<kSlices> + rows_of_warp<kSlices>();
  const unsigned first = a.split_k.splits > 1 ? columns_of_split(a.w.cols, block_y(), a.split_k.splits).first : 0;
  for (unsigned tile = 0; tile < kTilesAhead; ++tile) prefetch_tiles<kSlices>(a, warp_row, first + tile * kTileColumns);
}

// Blocks of kLinearThreads: x over kRowsOfBlock<kSlices> rows (of each head), y over kTile tokens or splits of the
// columns. Of experts x is over tiles of pairs, so that an expert's blocks are neighbours and a prompt may have any
// length, and y over rows.
template <Stored kType, unsigned kTile, unsigned kSlices>
KV_KERNEL KV_RESIDENT(kLinearThreads, 2) void linear_many(LinearArguments a) {
  KV_SHARED(Pack, tile, kTile * kTileStride);
  KV_SHARED(float, norms, kTile * 2);
  KV_SHARED(float, squares, kTile * kTilePacks);
  KV_SHARED(float, slices, kSlices > 1 ? kLinearThreads * kTile / 2 : 1);
  KV_SHARED(unsigned, ticket, 1);
  allow_next();
  prefetch_first_tiles<kSlices>(a);
  await_previous();
  many_products<kType, kTile, kSlices>(a, {tile, norms, squares, slices, ticket});
}

}  // namespace kvroof::cuda
