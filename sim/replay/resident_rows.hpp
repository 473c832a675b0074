// ResidentRows: the exponentials of successive queries over what the heads of one point hold, in the order of slots.
//
// What a head holds changes by a slot or so a row. So the rows that ExactRows interleaves are gathered together, a few
// elements with one load, and what changed since is mended slot by slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/ids.hpp"
#include "sim/replay/exact_rows.hpp"

namespace kvroof {

// What a storage head holds at a row.
struct HeldSlots {
  std::uint32_t head = 0;
  std::uint32_t group = 1;              // query heads of the storage head
  std::span<const TokenPos> positions;  // [slots]
  SlotId admitted = {};                 // the slot of the row's own token
  bool moved = false;  // whether other slots than that one may have another token than at the row before
};

class ResidentRows {
 public:
  // Rows of another block, layer or point follow.
  void start() {
    for (Head& head : heads_) head.from = kNothing;
  }
  // Makes row() know what the head holds at the query at `position`; positions do not fall from call to call. The rows
  // hold exponentials.
  void show(const ExactRows& rows, std::uint32_t position, const HeldSlots& held);
  // The exponentials of the last show() of that head, [slots].
  [[nodiscard]] std::span<const float> row(std::uint32_t head, std::uint32_t g) const {
    const Head& h = heads_[head];
    return {h.start + (std::size_t{g} * kInterleavedRows + h.at) * h.stride, h.slots};
  }

 private:
  static constexpr std::uint32_t kNothing = 0xffffffffU;
  struct Head {
    std::uint32_t from = kNothing;  // first of the interleaved rows that are gathered
    std::uint32_t at = 0;           // row shown, from the first on
    std::size_t slots = 0;
    std::size_t stride = 0;       // slots that there is room for
    std::vector<TokenPos> known;  // [slots]: what was gathered
    std::vector<float> values;
    float* start = nullptr;  // of [group][kInterleavedRows][stride] in them, where a cache line starts
  };
  static void gather_all(const ExactRows& rows, const HeldSlots& held, Head& to);
  static void mend(const ExactRows& rows, const HeldSlots& held, std::size_t slot, Head& to);
  static void mend_all(const ExactRows& rows, const HeldSlots& held, Head& to);

  std::vector<Head> heads_;
};

}  // namespace kvroof
