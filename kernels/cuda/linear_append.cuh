// q, k and v of a decode step in one launch: the product, then clamp, norm, rotation and the new rows of the cache. The
// block that finishes the last rows of a head goes on with that head, while others still multiply.
#pragma once

#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/linear_many.cuh"
#include "kernels/cuda/prepare.cuh"

namespace kvroof::cuda {

// A head's floats of each warp, in shared memory.
constexpr unsigned kAppendFloats = kLinearWarps * kMostAppendedDim;

// The head of q, k or v that a row of the product belongs to.
struct ProductHead {
  unsigned which = 0;   // 0 of q, 1 of k, 2 of v
  unsigned head = 0;
  unsigned index = 0;   // among all of them
  std::uint32_t first = 0, end = 0;  // its rows
};

KV_DEVICE ProductHead head_of_row(const PrepareArguments& a, std::uint32_t row) {
  const std::uint32_t k = a.q.heads * a.q.dim;
  const std::uint32_t v = k + a.k.heads * a.k.dim;
  if (row < k) return {0, row / a.q.dim, row / a.q.dim, row / a.q.dim * a.q.dim, (row / a.q.dim + 1) * a.q.dim};
  const bool is_k = row < v;
  const std::uint32_t dim = is_k ? a.k.dim : a.v.dim;
  const std::uint32_t before = is_k ? k : v;
  const std::uint32_t head = (row - before) / dim;
  return {is_k ? 1U : 2U, head, a.q.heads + (is_k ? 0 : a.k.heads) + head, before + head * dim,
          before + (head + 1) * dim};
}

// A finished head of all tokens, a warp a token.
template <Stored kWeights>
KV_DEVICE void append_head(const AppendArguments& a, const ProductHead& h, float* rows) {
  const PrepareArguments& p = a.heads;
  const HeadPart part = h.which == 0 ? p.q : h.which == 1 ? p.k : p.v;
  float* row = rows + thread_x() / 32 * kMostAppendedDim;
  for (unsigned token = thread_x() / 32; token < p.tokens; token += kLinearWarps) {
    const float* x = part.from.x + std::size_t{token} * part.from.row + std::size_t{h.head} * part.from.step;
    prepare_head<kWeights>(p, part, x, h.head, token, 0, row);
    sync_warp();
    switch (a.cache) {
      case Stored::kBF16: store_head<Stored::kBF16>(p, h.which, part, h.head, token, row); break;
      case Stored::kF16: store_head<Stored::kF16>(p, h.which, part, h.head, token, row); break;
      case Stored::kInt8: store_head<Stored::kInt8>(p, h.which, part, h.head, token, row); break;
      default: store_head<Stored::kInt4>(p, h.which, part, h.head, token, row);
    }
    sync_warp();
  }
}

// After the rows of the product that this block makes, of `rows_of_block` each: heads that have all of theirs are
// appended.
template <Stored kWeights>
KV_DEVICE void append_heads(const AppendArguments& a, RowRange made, unsigned rows_of_block, unsigned* ticket,
                            float* rows) {
  for (std::uint32_t row = made.first; row < made.end;) {
    const ProductHead h = head_of_row(a.heads, row);
    const unsigned blocks = (h.end - 1) / rows_of_block - h.first / rows_of_block + 1;
    finish_split(a.finished + h.index, blocks, ticket, [&] { append_head<kWeights>(a, h, rows); });
    row = h.end;
  }
}

// Line by line, by the threads of a block.
KV_DEVICE void prefetch_all(const void* data, std::size_t bytes) {
  if (data == nullptr) return;
  for (std::size_t at = std::size_t{thread_x()} * 128; at < bytes; at += std::size_t{kLinearThreads} * 128) {
    prefetch(static_cast<const std::byte*>(data) + at);
  }
}

// What each layer's step needs of the tables of tokens and slots has left the cache since the layer before: the block
// that ends a head would wait for it, and attention for that block.
KV_DEVICE void prefetch_tables(const PrepareArguments& a, std::uint32_t row) {
  prefetch_all(a.cos_sin, sizeof(float) * 2 * a.tokens * a.rotary_pairs);
  prefetch_all(a.positions, sizeof *a.positions * a.tokens);
  prefetch_all(a.rows, sizeof *a.rows * a.tokens);
  const ProductHead h = head_of_row(a, row);
  const unsigned token = thread_x() / a.copies;
  if (h.which == 0 || token >= a.tokens) return;
  const std::size_t place = (std::size_t{token} * a.k.heads + h.head) * a.copies + thread_x() % a.copies;
  prefetch(reinterpret_cast<const std::byte*>(a.slots + place));
}

// Blocks as of linear.
template <Stored kType, unsigned kTokens>
KV_KERNEL KV_RESIDENT(kLinearThreads, kLinearBlocks<kTokens>) void linear_append(AppendArguments a) {
  KV_SHARED(float, chunk, kChunkFloats);
  KV_SHARED(float, scratch, kLinearWarps);
  KV_SHARED(unsigned, ticket, 1);
  static_assert(kAppendFloats <= kChunkFloats);
  allow_next();
  const RowRange rows = block_rows(a.linear);
  WeightStream<kType> weights(a.linear, rows);
  prefetch_linear(a.linear, rows);
  if (rows.first < rows.end) prefetch_tables(a.heads, rows.first);
  load_norms<kType, kTokens>(a.linear, 0, chunk);
  await_previous();
  few_products<kType, kTokens>(a.linear, rows, weights, chunk, scratch);
  append_heads<kType>(a, rows, rows_of_block(a.linear, blocks_x()), ticket, chunk);
}

// Blocks as of linear_many; one tile has all tokens. Of blocks that share columns the one that finishes goes on.
template <Stored kType, unsigned kTile, unsigned kSlices>
KV_KERNEL KV_RESIDENT(kLinearThreads, 2) void linear_many_append(AppendArguments a) {
  KV_SHARED(Pack, tile, kTile * kTileStride);
  KV_SHARED(float, norms, kTile * 2);
  KV_SHARED(float, squares, kTile * kTilePacks);
  KV_SHARED(float, rows, kAppendFloats);  // of the warps that share rows before
  KV_SHARED(unsigned, ticket, 1);
  static_assert(kSlices == 1 || kLinearThreads * kTile / 2 <= kAppendFloats);
  allow_next();
  prefetch_first_tiles<kSlices>(a.linear);
  await_previous();
  // In f16 registers do not suffice for columns that are shared.
  constexpr bool kSplitK = kTile == kLargeTile && kSlices == 1 && kType == Stored::kBF16;
  if (!many_products<kType, kTile, kSlices, kSplitK>(a.linear, {tile, norms, squares, rows, ticket})) return;
  constexpr unsigned kRows = kRowsOfBlock<kSlices>;
  const std::uint32_t first = block_x() * kRows;
  const std::uint32_t end = first + kRows < a.linear.w.rows ? first + kRows : a.linear.w.rows;
  append_heads<kType>(a, {first, end}, kRows, ticket, rows);
}

}  // namespace kvroof::cuda
