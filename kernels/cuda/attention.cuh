// Decode attention over the slots of an evicted, ragged cache: split over the slots, one pass over k and v for all
// query heads of a group, exact log-sum-exp.
//
// A unit is one KV head of one sequence (and, where more than kGroup query heads share it, one pass over kGroup of
// them). The slots of a unit are cut into items of at most kItemSlots; a block takes one item at a time. The block that
// finishes a unit's last item combines its parts. Softmax does not depend on the order of slots, so a token may lie in
// any of them: what matters about a slot is its position.
#pragma once

#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/numbers.cuh"

namespace kvroof::cuda {

constexpr unsigned kAttentionThreads = 128;
constexpr unsigned kAttentionWarps = kAttentionThreads / 32;
// Rows that a lane asks for before it uses the first; their scales and positions with them, as nothing is read early
// that comes after a store.
template <Stored kType>
constexpr unsigned kInFlight = kBits<kType> == 16 ? 4 : 8;
constexpr float kNever = -1e30F;  // the logit of a slot that must not be seen

// Loads the group's queries into registers: this lane's eight elements of each.
template <unsigned kGroup>
KV_DEVICE void load_queries(const AttentionArguments& a, const AttentionUnit& unit, unsigned column,
                            float (&q)[kGroup][8]) {
  KV_UNROLL
  for (unsigned g = 0; g < kGroup; ++g) {
    const bool there = g < unit.query_heads && column < a.head_dim;
    const float* row = a.q + (std::size_t{unit.sequence} * a.heads + unit.first_query_head + g) * a.head_dim + column;
    KV_UNROLL
    for (unsigned i = 0; i < 8; ++i) q[g][i] = 0;
    if (there) load_floats(row, q[g]);
  }
}

// Whether logits depend on where their tokens stand.
KV_DEVICE bool needs_positions(const AttentionArguments& a) { return a.window > 0 || a.alibi != nullptr; }

// scale · q·k, soft-cap, ALiBi and window, in that order.
KV_DEVICE float finished_logit(const AttentionArguments& a, float dot, std::uint32_t position, std::uint32_t query,
                               float slope) {
  float logit = a.scale * dot;
  if (a.softcap > 0) logit = a.softcap * tanhf(logit / a.softcap);
  logit += slope * static_cast<float>(static_cast<std::int32_t>(position - query));
  return a.window > 0 && position + a.window <= query ? kNever : logit;
}

// Logits of the item's slots into `weights` [kGroup][kItemSlots].
template <Stored kType, unsigned kWidth, unsigned kGroup>
KV_DEVICE void item_logits(const AttentionArguments& a, const AttentionUnit& unit, const AttentionItem& item,
                           float* weights) {
  constexpr unsigned kLanes = kWidth / 8;      // of one row
  constexpr unsigned kRows = 32 / kLanes;      // that a warp takes at once
  constexpr unsigned kStep = kRows * kAttentionWarps;
  const unsigned lane = thread_x() % 32;
  const unsigned column = lane % kLanes * 8;
  const unsigned row_of_lane = thread_x() / 32 * kRows + lane / kLanes;
  const std::uint32_t query = a.query[unit.sequence];
  const bool has_slope = a.alibi != nullptr && lane % kGroup < unit.query_heads;
  const float slope = has_slope ? a.alibi[unit.first_query_head + lane % kGroup] : 0.0F;
  const bool placed = needs_positions(a);
  float q[kGroup][8];
  load_queries<kGroup>(a, unit, column, q);
  for (unsigned at = 0; at < item.count; at += kStep * kInFlight<kType>) {
    Eight<kType> keys[kInFlight<kType>] = {};
    float scales[kInFlight<kType>];
    std::uint32_t positions[kInFlight<kType>];
    KV_UNROLL
    for (unsigned u = 0; u < kInFlight<kType>; ++u) {
      const unsigned slot = at + u * kStep + row_of_lane;
      scales[u] = 1;
      positions[u] = query;
      if (slot >= item.count) continue;
      const std::size_t row = item.first + slot;
      if (column < a.head_dim) keys[u] = load_eight<kType>(unit.slots.keys + row * a.key_row_bytes, lane % kLanes);
      if (kBits<kType> < 16) scales[u] = unit.slots.key_scales[row];
      if (placed) positions[u] = unit.slots.positions[row];
    }
    KV_UNROLL
    for (unsigned u = 0; u < kInFlight<kType>; ++u) {
      const unsigned slot = at + u * kStep + row_of_lane;
      float k[8];
      to_floats<kType>(keys[u], k);
      float dots[kGroup];
      KV_UNROLL
      for (unsigned g = 0; g < kGroup; ++g) {
        dots[g] = 0;
        KV_UNROLL
        for (unsigned i = 0; i < 8; ++i) dots[g] += q[g][i] * k[i];
      }
      const float dot = scattered_sum<kGroup, kLanes>(dots, lane);
      if (slot >= item.count || lane % kLanes >= kGroup) continue;
      const std::size_t row = item.first + slot;
      const float logit = finished_logit(a, dot * scales[u], positions[u], query, slope);
      weights[lane % kGroup * kItemSlots + slot] = logit;
      if (unit.slots.logits != nullptr) unit.slots.logits[row * kGroup + lane % kGroup] = logit;
    }
  }
}

// weights = exp(logit − max) of each head; the max and the sum go to the unit's parts.
template <unsigned kGroup>
KV_DEVICE void item_softmax(const AttentionArguments& a, const AttentionItem& item, float* weights) {
  const unsigned lane = thread_x() % 32;
  for (unsigned g = thread_x() / 32; g < kGroup; g += kAttentionWarps) {
    float* row = weights + g * kItemSlots;
    float highest = kNever;
    for (unsigned slot = lane; slot < item.count; slot += 32) highest = row[slot] > highest ? row[slot] : highest;
    highest = max_over(highest, 32);
    float sum = 0;
    for (unsigned slot = lane; slot < item.count; slot += 32) {
      const float weight = row[slot] <= kNever ? 0.0F : exp_of(row[slot] - highest);
      row[slot] = weight;
      sum += weight;
    }
    sum = sum_over(sum, 32);
    const std::size_t at = (std::size_t{item.unit} * a.most_parts + item.part) * kGroup + g;
    if (lane == 0) {
      a.part_max[at] = highest;
      a.part_sum[at] = sum;
    }
  }
}

// Σ weight · value of the item's slots, summed over the warps in `sums` [warps][kGroup][kWidth].
template <Stored kType, unsigned kWidth, unsigned kGroup>
KV_DEVICE void item_output(const AttentionArguments& a, const AttentionUnit& unit, const AttentionItem& item,
                           const float* weights, float* sums) {
  constexpr unsigned kLanes = kWidth / 8;
  constexpr unsigned kRows = 32 / kLanes;
  constexpr unsigned kStep = kRows * kAttentionWarps;
  const unsigned lane = thread_x() % 32;
  const unsigned warp = thread_x() / 32;
  const unsigned column = lane % kLanes * 8;
  float out[kGroup][8] = {};
  const unsigned row_of_lane = warp * kRows + lane / kLanes;
  for (unsigned at = 0; at < item.count; at += kStep * kInFlight<kType>) {
    Eight<kType> values[kInFlight<kType>] = {};
    float scales[kInFlight<kType>];
    KV_UNROLL
    for (unsigned u = 0; u < kInFlight<kType>; ++u) {
      const unsigned slot = at + u * kStep + row_of_lane;
      scales[u] = 1;
      if (slot >= item.count || column >= a.value_dim) continue;
      const std::size_t row = item.first + slot;
      values[u] = load_eight<kType>(unit.slots.values + row * a.value_row_bytes, lane % kLanes);
      if (kBits<kType> < 16) scales[u] = unit.slots.value_scales[row];
    }
    KV_UNROLL
    for (unsigned u = 0; u < kInFlight<kType>; ++u) {
      const unsigned slot = at + u * kStep + row_of_lane;
      if (slot >= item.count) continue;
      float v[8];
      to_floats<kType>(values[u], v);
      KV_UNROLL
      for (unsigned g = 0; g < kGroup; ++g) {
        const float weight = weights[g * kItemSlots + slot] * scales[u];
        KV_UNROLL
        for (unsigned i = 0; i < 8; ++i) out[g][i] += weight * v[i];
      }
    }
  }
  KV_UNROLL
  for (unsigned g = 0; g < kGroup; ++g) {
    KV_UNROLL
    for (unsigned i = 0; i < 8; ++i) {
      for (unsigned mask = kLanes; mask < 32; mask *= 2) out[g][i] += from_lane_xor(out[g][i], mask);
    }
    if (lane >= kLanes) continue;
    KV_UNROLL
    for (unsigned i = 0; i < 8; ++i) sums[(warp * kGroup + g) * kWidth + column + i] = out[g][i];
  }
  sync_block();
  const std::size_t part = std::size_t{item.unit} * a.most_parts + item.part;
  for (unsigned at = thread_x(); at < kGroup * kWidth; at += kAttentionThreads) {
    float sum = 0;
    for (unsigned w = 0; w < kAttentionWarps; ++w) sum += sums[w * kGroup * kWidth + at];
    a.part_out[part * kGroup * kWidth + at] = sum;
  }
}

// The unit's parts become its output; run by the block that finished the last of them. `tops` is shared memory: the
// max and the sum of each head. A warp meets the parts of a head side by side, and a thread four columns of them: a
// unit may have a hundred parts, and one after the other they would take longer than all that was read.
template <unsigned kWidth, unsigned kGroup>
KV_DEVICE void combine_parts(const AttentionArguments& a, const AttentionUnit& unit, std::uint32_t index,
                             float* tops) {
  const std::size_t first = std::size_t{index} * a.most_parts;
  const unsigned lane = thread_x() % 32;
  for (unsigned g = thread_x() / 32; g < unit.query_heads; g += kAttentionWarps) {
    float highest = kNever;
    KV_UNROLL_BY(1)
    for (unsigned p = lane; p < unit.parts; p += 32) {
      const float other = a.part_max[(first + p) * kGroup + g];
      highest = other > highest ? other : highest;
    }
    highest = max_over(highest, 32);
    float total = 0;
    KV_UNROLL_BY(1)
    for (unsigned p = lane; p < unit.parts; p += 32) {
      const std::size_t at = (first + p) * kGroup + g;
      total += a.part_sum[at] * exp_of(a.part_max[at] - highest);
    }
    total = sum_over(total, 32);
    if (lane != 0) continue;
    tops[2 * g] = highest;
    tops[2 * g + 1] = total;
    a.log_sums[std::size_t{index} * kGroup + g] = highest + logf(total);
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
      const std::size_t at = (first + p) * kGroup + g;
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

// Blocks of kAttentionThreads; any number of them. Reads k and v of every slot of every unit once.
template <Stored kType, unsigned kWidth, unsigned kGroup>
KV_KERNEL void decode_attention(AttentionArguments a) {
  KV_SHARED(float, weights, kGroup * kItemSlots);
  KV_SHARED(float, sums, kAttentionWarps * kGroup * kWidth);
  KV_SHARED(unsigned, before, 1);
  await_previous();
  for (std::uint32_t i = block_x(); i < *a.item_count; i += blocks_x()) {
    AttentionItem item = a.items[i];
    AttentionUnit unit = a.units[item.unit];
    if (!cut_to_row(a.rows, a.item_slots, unit, item)) continue;
    item_logits<kType, kWidth, kGroup>(a, unit, item, weights);
    sync_block();
    item_softmax<kGroup>(a, item, weights);
    sync_block();
    item_output<kType, kWidth, kGroup>(a, unit, item, weights, sums);
    finish_part(a.finished + item.unit, unit.parts, before, [&] {
      combine_parts<kWidth, kGroup>(a, unit, item.unit, weights);
    });
  }
}

}  // namespace kvroof::cuda
