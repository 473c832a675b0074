// What split-KV attention is made of, whatever meets the slots: logits, and the splits of a unit.
#pragma once

#include "kernels/cuda/kv_splits.cuh"
#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/numbers.cuh"

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

// The max and the sum of a unit's query head g over its splits, in every lane; for a warp.
KV_DEVICE void sum_splits(const AttentionArguments& a, std::size_t first, unsigned splits, unsigned g, float& highest,
                          float& total) {
  highest = kNever;
  total = 0;
  KV_UNROLL_BY(1)
  for (unsigned p = thread_x() % 32; p < splits; p += 32) {
    const std::size_t at = (first + p) * a.unit_heads + g;
    const float other = a.split_max[at];
    const float sum = a.split_sum[at];
    const float top = higher_of(highest, other);
    total = total * exp_of(highest - top) + sum * exp_of(other - top);
    highest = top;
  }
  const float own = highest;
  highest = max_over(highest, 32);
  total = sum_over(total * exp_of(own - highest), 32);
}

// What this thread adds of four columns from `column` on of head g: every `step`-th split from `first` on, relative to
// `highest`, kAhead of them on their way.
template <unsigned kWidth>
KV_DEVICE void add_splits(const AttentionArguments& a, const KvSplit& split, unsigned first, unsigned step, unsigned g,
                          unsigned column, float highest, float (&added)[4]) {
  constexpr unsigned kAhead = 12;
  const std::size_t splits = std::size_t{split.unit} * a.most_splits;
  KV_UNROLL_BY(1)
  for (unsigned p = first; p < split.splits; p += kAhead * step) {
    Pack outs[kAhead];
    float factors[kAhead];
    KV_UNROLL
    for (unsigned n = 0; n < kAhead; ++n) {
      const unsigned index = p + n * step;
      const std::size_t at = (splits + index) * a.unit_heads + g;
      outs[n] = index < split.splits ? load_pack(a.split_out + at * kWidth + column) : Pack{};
      factors[n] = index < split.splits ? a.split_max[at] : kNever;
    }
    KV_UNROLL
    for (unsigned n = 0; n < kAhead; ++n) {
      const float factor = exp_of(factors[n] - highest);
      added[0] += float_of(outs[n].x) * factor;
      added[1] += float_of(outs[n].y) * factor;
      added[2] += float_of(outs[n].z) * factor;
      added[3] += float_of(outs[n].w) * factor;
    }
  }
}

// The unit's splits become its output, by log-sum-exp; for the block that finished the last of them. `tops` is shared
// memory: the max and the sum of each head; `sums` [4 · kAttentionThreads] as well. A unit may have hundreds of splits,
// which one after the other would take longer than all that was read: threads that columns do not keep busy share them.
template <unsigned kWidth>
KV_DEVICE void combine_splits(const AttentionArguments& a, const AttentionUnit& unit, const KvSplit& split,
                              float* tops, float* sums) {
  for (unsigned g = thread_x() / 32; g < unit.query_heads; g += kAttentionWarps) {
    float highest;
    float total;
    sum_splits(a, std::size_t{split.unit} * a.most_splits, split.splits, g, highest, total);
    if (thread_x() % 32 != 0) continue;
    tops[2 * g] = highest;
    tops[2 * g + 1] = total;
    a.log_sums[std::size_t{split.unit} * a.unit_heads + g] = highest + logf(total);
  }
  sync_block();
  const unsigned fours = a.value_dim / 4;
  const unsigned items = unit.query_heads * fours;
  const unsigned shares = items < kAttentionThreads ? kAttentionThreads / items : 1;
  float* out = a.out + (std::size_t{unit.sequence} * a.heads + unit.first_query_head) * a.value_dim;
  for (unsigned i = thread_x(); i < items * shares; i += kAttentionThreads) {
    const unsigned g = i % items / fours;
    float added[4] = {};
    add_splits<kWidth>(a, split, i / items, shares, g, i % fours * 4, tops[2 * g], added);
    KV_UNROLL
    for (unsigned c = 0; c < 4; ++c) {
      if (shares > 1) sums[i * 4 + c] = added[c];
      if (shares == 1) out[i * 4 + c] = added[c] / tops[2 * g + 1];
    }
  }
  if (shares == 1) return;
  sync_block();
  for (unsigned i = thread_x(); i < items * 4; i += kAttentionThreads) {
    float sum = 0;
    for (unsigned s = 0; s < shares; ++s) sum += sums[s * items * 4 + i];
    out[i] = sum / tops[2 * (i / a.value_dim) + 1];
  }
}

}  // namespace kvroof::cuda
