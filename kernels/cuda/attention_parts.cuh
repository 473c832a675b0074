// What attention over items of slots is made of, whatever meets them: logits, and the parts of a unit.
#pragma once

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

// The unit's parts become its output; run by the block that finished the last of them. `tops` is shared memory: the
// max and the sum of each head. A warp meets the parts of a head side by side, and a thread four columns of them,
// kAtOnce parts on their way: a unit may have a hundred, and one after the other they would take longer than all that
// was read.
template <unsigned kWidth>
KV_DEVICE void combine_parts(const AttentionArguments& a, const AttentionUnit& unit, std::uint32_t index,
                             float* tops) {
  constexpr unsigned kAtOnce = 12;
  const std::size_t first = std::size_t{index} * a.most_parts;
  for (unsigned g = thread_x() / 32; g < unit.query_heads; g += kAttentionWarps) {
    float highest;
    float total;
    sum_parts(a, first, unit.parts, g, highest, total);
    if (thread_x() % 32 != 0) continue;
    tops[2 * g] = highest;
    tops[2 * g + 1] = total;
    a.log_sums[std::size_t{index} * a.unit_heads + g] = highest + logf(total);
  }
  sync_block();
  const unsigned fours = a.value_dim / 4;
  for (unsigned i = thread_x(); i < unit.query_heads * fours; i += kAttentionThreads) {
    const unsigned g = i / fours;
    const unsigned column = i % fours * 4;
    const float highest = tops[2 * g];
    float sums[4] = {};
    KV_UNROLL_BY(1)
    for (unsigned p = 0; p < unit.parts; p += kAtOnce) {
      Pack parts[kAtOnce];
      float factors[kAtOnce];
      KV_UNROLL
      for (unsigned n = 0; n < kAtOnce; ++n) {
        const std::size_t at = (first + p + n) * a.unit_heads + g;
        const bool there = p + n < unit.parts;
        parts[n] = there ? load_pack(a.part_out + at * kWidth + column) : Pack{};
        factors[n] = there ? a.part_max[at] : kNever;
      }
      KV_UNROLL
      for (unsigned n = 0; n < kAtOnce; ++n) {
        const float factor = exp_of(factors[n] - highest);
        sums[0] += float_of(parts[n].x) * factor;
        sums[1] += float_of(parts[n].y) * factor;
        sums[2] += float_of(parts[n].z) * factor;
        sums[3] += float_of(parts[n].w) * factor;
      }
    }
    float* out = a.out + (std::size_t{unit.sequence} * a.heads + unit.first_query_head + g) * a.value_dim + column;
    const float total = tops[2 * g + 1];
    KV_UNROLL
    for (unsigned c = 0; c < 4; ++c) out[c] = sums[c] / total;
  }
}

// Whether anything of the item is within its row; leaves out what is not.
KV_DEVICE bool cut_to_row(const StepRow* rows, std::uint32_t item_slots, AttentionUnit& unit, AttentionItem& item) {
  if (rows == nullptr) return true;
  const std::uint32_t length = rows[unit.sequence].length;
  if (item.first >= length) return false;
  if (item.count > length - item.first) item.count = length - item.first;
  unit.parts = (length + item_slots - 1) / item_slots;
  return true;
}

}  // namespace kvroof::cuda
