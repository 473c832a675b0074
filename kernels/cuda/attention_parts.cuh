// What attention over runs of slots is made of, whatever meets them: logits, and the parts of a unit.
#pragma once

#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/runs.cuh"

namespace kvroof::cuda {

constexpr unsigned kAttentionThreads = 128;
constexpr unsigned kAttentionWarps = kAttentionThreads / 32;
constexpr float kNever = -1e30F;  // the logit of a slot that must not be seen

// Whether logits depend on where their tokens stand.
KV_DEVICE bool needs_positions(const AttentionArguments& a) { return a.window > 0 || a.alibi != nullptr; }

// ALiBi and window.
KV_DEVICE float placed_logit(const AttentionArguments& a, float logit, std::uint32_t position, std::uint32_t query,
                             float slope) {
  logit += slope * static_cast<float>(static_cast<std::int32_t>(position - query));
  return a.window > 0 && position + a.window <= query ? kNever : logit;
}

// scale · q·k, soft-cap, ALiBi and window, in that order.
KV_DEVICE float finished_logit(const AttentionArguments& a, float dot, std::uint32_t position, std::uint32_t query,
                               float slope) {
  const float logit = a.scale * dot;
  return placed_logit(a, a.softcap > 0 ? soft_capped(logit, a.softcap) : logit, position, query, slope);
}

// The max and the sum of a unit's query head g over its parts, in every lane; for a warp.
KV_DEVICE void sum_parts(const AttentionArguments& a, std::size_t first, unsigned parts, unsigned g, float& highest,
                         float& total) {
  highest = kNever;
  total = 0;
  KV_UNROLL_BY(1)
  for (unsigned p = thread_x() % 32; p < parts; p += 32) {
    const std::size_t at = (first + p) * a.unit_heads + g;
    const float other = a.part_max[at];
    const float sum = a.part_sum[at];
    const float top = higher_of(highest, other);
    total = total * exp_of(highest - top) + sum * exp_of(other - top);
    highest = top;
  }
  const float own = highest;
  highest = max_over(highest, 32);
  total = sum_over(total * exp_of(own - highest), 32);
}

// What one warp adds of the parts of heads [first, first + heads): every kAttentionWarps-th part, four columns a lane
// at a time and kAhead parts on their way, into `sums` [heads · columns].
template <unsigned kWidth>
KV_DEVICE void add_parts(const AttentionArguments& a, const RunPiece& piece, unsigned first, unsigned heads,
                         const float* tops, float* sums) {
  constexpr unsigned kAhead = 8;
  const std::size_t parts = std::size_t{piece.unit} * a.most_parts;
  const unsigned fours = a.value_dim / 4;
  for (unsigned i = thread_x() % 32; i < heads * fours; i += 32) {
    const unsigned g = first + i / fours;
    const unsigned column = i % fours * 4;
    float added[4] = {};
    KV_UNROLL_BY(1)
    for (unsigned p = thread_x() / 32; p < piece.parts; p += kAhead * kAttentionWarps) {
      Pack outs[kAhead];
      float factors[kAhead];
      KV_UNROLL
      for (unsigned n = 0; n < kAhead; ++n) {
        const unsigned part = p + n * kAttentionWarps;
        const std::size_t at = (parts + part) * a.unit_heads + g;
        outs[n] = part < piece.parts ? load_pack(a.part_out + at * kWidth + column) : Pack{};
        factors[n] = part < piece.parts ? a.part_max[at] : kNever;
      }
      KV_UNROLL
      for (unsigned n = 0; n < kAhead; ++n) {
        const float factor = exp_of(factors[n] - tops[2 * g]);
        added[0] += float_of(outs[n].x) * factor;
        added[1] += float_of(outs[n].y) * factor;
        added[2] += float_of(outs[n].z) * factor;
        added[3] += float_of(outs[n].w) * factor;
      }
    }
    KV_UNROLL
    for (unsigned c = 0; c < 4; ++c) sums[i * 4 + c] = added[c];
  }
}

// The unit's parts become its output; run by the block that finished the last of them. `tops` is shared memory: the
// max and the sum of each head; `sums` [kAttentionWarps, kHeads · kWidth] as well. A unit may have hundreds of parts,
// which one after the other would take longer than all that was read: the warps share them.
template <unsigned kWidth, unsigned kHeads = 4>
KV_DEVICE void combine_parts(const AttentionArguments& a, const AttentionUnit& unit, const RunPiece& piece,
                             float* tops, float* sums) {
  for (unsigned g = thread_x() / 32; g < unit.query_heads; g += kAttentionWarps) {
    float highest;
    float total;
    sum_parts(a, std::size_t{piece.unit} * a.most_parts, piece.parts, g, highest, total);
    if (thread_x() % 32 != 0) continue;
    tops[2 * g] = highest;
    tops[2 * g + 1] = total;
    a.log_sums[std::size_t{piece.unit} * a.unit_heads + g] = highest + logf(total);
  }
  for (unsigned first = 0; first < unit.query_heads; first += kHeads) {
    const unsigned heads = unit.query_heads - first < kHeads ? unit.query_heads - first : kHeads;
    sync_block();
    add_parts<kWidth>(a, piece, first, heads, tops, sums + thread_x() / 32 * kHeads * kWidth);
    sync_block();
    float* out = a.out + (std::size_t{unit.sequence} * a.heads + unit.first_query_head + first) * a.value_dim;
    for (unsigned i = thread_x(); i < heads * a.value_dim; i += kAttentionThreads) {
      float sum = 0;
      KV_UNROLL
      for (unsigned w = 0; w < kAttentionWarps; ++w) sum += sums[w * kHeads * kWidth + i];
      out[i] = sum / tops[2 * (first + i / a.value_dim) + 1];
    }
  }
}

}  // namespace kvroof::cuda
