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

// After this block's kRows rows of the product: heads that have all of theirs are appended.
template <Stored kWeights, unsigned kRows>
KV_DEVICE void append_heads(const AppendArguments& a, unsigned* before, float* rows) {
  const std::uint32_t first = block_x() * kRows;
  const std::uint32_t end = first + kRows < a.linear.w.rows ? first + kRows : a.linear.w.rows;
  for (std::uint32_t row = first; row < end;) {
    const ProductHead h = head_of_row(a.heads, row);
    const unsigned blocks = (h.end - 1) / kRows - h.first / kRows + 1;
    finish_part(a.finished + h.index, blocks, before, [&] { append_head<kWeights>(a, h, rows); });
    row = h.end;
  }
}

// Blocks as of linear.
template <Stored kType, unsigned kTokens>
KV_KERNEL KV_RESIDENT(kLinearThreads, kLinearBlocks<kTokens>) void linear_append(AppendArguments a) {
  KV_SHARED(float, chunk, kTokens * kChunk);
  KV_SHARED(float, scratch, kLinearWarps);
  KV_SHARED(unsigned, before, 1);
  static_assert(kAppendFloats <= kTokens * kChunk);
  const std::uint32_t row = (block_x() * kLinearWarps + thread_x() / 32) * kRowsOfWarp;
  prefetch_rows(a.linear.w, row);
  await_previous();
  few_products<kType, kTokens>(a.linear, row, chunk, scratch);
  append_heads<kType, kLinearWarps * kRowsOfWarp>(a, before, chunk);
}

// Blocks as of linear_many; one tile has all tokens. Of blocks that share columns the one that finishes goes on.
template <Stored kType, unsigned kTile, unsigned kSplits>
KV_KERNEL KV_RESIDENT(kLinearThreads, 2) void linear_many_append(AppendArguments a) {
  KV_SHARED(Pack, tile, kTile * kTileStride);
  KV_SHARED(float, norms, kTile * 2);
  KV_SHARED(float, squares, kTile * kTilePacks);
  KV_SHARED(float, rows, kAppendFloats);  // of the warps that share rows before
  KV_SHARED(unsigned, before, 1);
  static_assert(kSplits == 1 || kLinearThreads * kTile / 2 <= kAppendFloats);
  prefetch_first_tiles<kSplits>(a.linear);
  await_previous();
  // In f16 registers do not suffice for columns that are shared.
  constexpr bool kShares = kTile == kPartTokens && kSplits == 1 && kType == Stored::kBF16;
  if (!many_products<kType, kTile, kSplits, kShares>(a.linear, {tile, norms, squares, rows, before})) return;
  append_heads<kType, kRowsOfBlock<kSplits>>(a, before, rows);
}

}  // namespace kvroof::cuda
