// ResidentRows: the exponentials of successive queries over what the heads of one point hold, in the order of slots.
//
// What a head holds changes by a slot or so a row. So interleaved rows are gathered together, a few
// elements with one load, and what changed since is mended slot by slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/aligned_vector.hpp"
#include "sim/core/ids.hpp"
#include "sim/policy/policy.hpp"
#include "sim/replay/interleaved_rows.hpp"

namespace kvroof {

// What a storage head holds at a row.
struct HeldSlots {
  std::uint32_t head = 0;
  std::uint32_t place = 0;              // its rows' among those of the heads that are shown in turn
  std::uint32_t group = 1;              // query heads of the storage head
  std::span<const TokenPos> positions;  // [slots]
  SlotId admitted = {};                 // the slot of the row's own token
  std::span<const SlotMove> moves = {};  // since the row before: other slots whose tokens are not those it had
};

class ResidentRows {
 public:
  // Rows of another block, layer or point, or of other heads follow.
  void start() {
    for (Head& head : heads_) head.from = kNothing;
  }
  // Makes row() know what the head holds at the query at `position`; positions do not fall from call to call.
  void show(const InterleavedRows& rows, std::uint32_t position, const HeldSlots& held);
  // The exponentials of the last show() with that place, [slots].
  [[nodiscard]] std::span<const float> row(std::uint32_t place, std::uint32_t g) const {
    const Head& h = heads_[place];
    return {h.values.data() + (std::size_t{g} * kInterleavedRows + h.at) * h.stride, h.slots};
  }
  // Elements from the row of one query head of the group to that of the next.
  [[nodiscard]] std::size_t row_stride(std::uint32_t place) const { return kInterleavedRows * heads_[place].stride; }

 private:
  static constexpr std::uint32_t kNothing = 0xffffffffU;
  struct Head {
    std::uint32_t from = kNothing;  // first of the interleaved rows that are gathered
    std::uint32_t at = 0;           // row shown, from the first on
    std::size_t slots = 0;
    std::size_t stride = 0;       // slots that there is room for
    AlignedVector<float> values;  // [group][kInterleavedRows][stride]
  };
  static void gather_all(const InterleavedRows& rows, const HeldSlots& held, Head& to);
  static void mend(const InterleavedRows& rows, const HeldSlots& held, std::size_t slot, Head& to);

  std::vector<Head> heads_;  // by place
};

}  // namespace kvroof
