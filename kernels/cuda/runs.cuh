// What a block takes of the slots of many units: its run of items, unit by unit.
#pragma once

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/device.cuh"

namespace kvroof::cuda {

KV_DEVICE std::uint32_t length_of(const RunArguments& a, const AttentionUnit& unit) {
  return a.rows == nullptr ? unit.length : a.rows[unit.sequence].length;
}

// Runs that have some of the first `length` ≥ 1 slots of a unit.
KV_DEVICE std::uint32_t parts_of(const RunArguments& a, const AttentionUnit& unit, std::uint32_t length) {
  const std::uint32_t last = unit.first_item + (length - 1) / a.item_slots;
  return last / a.run_items - unit.first_item / a.run_items + 1;
}

// The items that a block has not met yet.
struct RunWalk {
  std::uint32_t item = 0, end = 0;
};

KV_DEVICE RunWalk run_of_block(const RunArguments& a) {
  const std::uint32_t first = block_x() * a.run_items;
  const std::uint32_t rest = a.item_count - first;
  return {first, first + (a.run_items < rest ? a.run_items : rest)};
}

// What the walk comes upon next; false at its end.
KV_DEVICE bool next_piece(const RunArguments& a, RunWalk& walk, RunPiece& piece) {
  while (walk.item < walk.end) {
    piece.unit = a.items[walk.item];
    const AttentionUnit& unit = a.units[piece.unit];
    const std::uint32_t length = length_of(a, unit);
    const std::uint32_t own = walk.item - unit.first_item;
    const std::uint32_t left = (unit.length - 1) / a.item_slots + 1 - own;  // items of the unit
    piece.part = walk.item / a.run_items - unit.first_item / a.run_items;
    const std::uint32_t taken = left < walk.end - walk.item ? left : walk.end - walk.item;
    walk.item += taken;
    piece.first = own * a.item_slots;
    if (piece.first >= length) continue;
    const std::uint32_t rest = length - piece.first;
    piece.count = taken * a.item_slots < rest ? taken * a.item_slots : rest;
    piece.parts = parts_of(a, unit, length);
    return true;
  }
  piece.count = 0;
  return false;
}

}  // namespace kvroof::cuda
