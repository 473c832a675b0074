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

// The unit's parts become its output; run by the block that finished the last of them. `tops` is shared memory: the
// max and the sum of each head. A warp meets the parts of a head side by side, and a thread four columns of them: a
// unit may have a hundred parts, and one after the other they would take longer than all that was read.
template <unsigned kWidth>
KV_DEVICE void combine_parts(const AttentionArguments& a, const AttentionUnit& unit, std::uint32_t index,
                             float* tops) {
  const std::size_t first = std::size_t{index} * a.most_parts;
  const unsigned lane = thread_x() % 32;
  for (unsigned g = thread_x() / 32; g < unit.query_heads; g += kAttentionWarps) {
    float highest = kNever;
    KV_UNROLL_BY(1)
    for (unsigned p = lane; p < unit.parts; p += 32) {
      const float other = a.part_max[(first + p) * a.unit_heads + g];
      highest = other > highest ? other : highest;
    }
    highest = max_over(highest, 32);
    float total = 0;
    KV_UNROLL_BY(1)
    for (unsigned p = lane; p < unit.parts; p += 32) {
      const std::size_t at = (first + p) * a.unit_heads + g;
      total += a.part_sum[at] * exp_of(a.part_max[at] - highest);
    }
    total = sum_over(total, 32);
    if (lane != 0) continue;
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
    const float total = tops[2 * g + 1];
    float sums[4] = {};
    KV_UNROLL_BY(6)
    for (unsigned p = 0; p < unit.parts; ++p) {
      const std::size_t at = (first + p) * a.unit_heads + g;
      const Pack part = *reinterpret_cast<const Pack*>(a.part_out + at * kWidth + column);
      const float factor = exp_of(a.part_max[at] - highest);
      sums[0] += float_of(part.x) * factor;
      sums[1] += float_of(part.y) * factor;
      sums[2] += float_of(part.z) * factor;
      sums[3] += float_of(part.w) * factor;
    }
    float* out = a.out + (std::size_t{unit.sequence} * a.heads + unit.first_query_head + g) * a.value_dim + column;
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
