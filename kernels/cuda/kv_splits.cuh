// What a block takes of the slots of many units: a range of items, which it meets split by split.
#pragma once

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/device.cuh"

namespace kvroof::cuda {

KV_DEVICE std::uint32_t length_of(const KvSchedule& a, const AttentionUnit& unit) {
  return a.rows == nullptr ? unit.length : a.rows[unit.sequence].length;
}

// Into how many splits the first `length` ≥ 1 slots of a unit fall.
KV_DEVICE std::uint32_t splits_of(const KvSchedule& a, const AttentionUnit& unit, std::uint32_t length) {
  const std::uint32_t last = unit.first_item + (length - 1) / a.item_slots;
  return last / a.block_items - unit.first_item / a.block_items + 1;
}

// The items that a block has not met yet.
struct ItemRange {
  std::uint32_t item = 0, end = 0;
};

KV_DEVICE ItemRange range_of_block(const KvSchedule& a) {
  const std::uint32_t first = block_x() * a.block_items;
  const std::uint32_t rest = a.item_count - first;
  return {first, first + (a.block_items < rest ? a.block_items : rest)};
}

// The next split of the range; false at its end.
KV_DEVICE bool next_split(const KvSchedule& a, ItemRange& range, KvSplit& split) {
  while (range.item < range.end) {
    split.unit = a.items[range.item];
    const AttentionUnit& unit = a.units[split.unit];
    const std::uint32_t length = length_of(a, unit);
    const std::uint32_t own = range.item - unit.first_item;
    const std::uint32_t left = (unit.length - 1) / a.item_slots + 1 - own;  // items of the unit
    split.index = range.item / a.block_items - unit.first_item / a.block_items;
    const std::uint32_t taken = left < range.end - range.item ? left : range.end - range.item;
    range.item += taken;
    split.first = own * a.item_slots;
    if (split.first >= length) continue;
    const std::uint32_t rest = length - split.first;
    split.count = taken * a.item_slots < rest ? taken * a.item_slots : rest;
    split.splits = splits_of(a, unit, length);
    return true;
  }
  split.count = 0;
  return false;
}

}  // namespace kvroof::cuda
