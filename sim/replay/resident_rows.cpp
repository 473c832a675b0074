#include "sim/replay/resident_rows.hpp"

namespace kvroof {
namespace {

// Slots that come after those there are now before all are gathered again.
constexpr std::size_t kRoom = 2 * kInterleavedRows;

constexpr std::size_t kLine = kCacheLine / sizeof(float);

}  // namespace

void ResidentRows::show(const InterleavedRows& rows, std::uint32_t position, const HeldSlots& held) {
  if (heads_.size() <= held.place) heads_.resize(held.place + 1);
  Head& h = heads_[held.place];
  const std::uint32_t first = rows.first_beside(position);
  const std::size_t slots = held.positions.size();
  const bool successive = h.from == first && h.at + 1 == position - first && slots <= h.stride;
  h.from = first;
  h.at = position - first;
  h.slots = slots;
  if (!successive || held.moves.size() > slots / kInterleavedRows) return gather_all(rows, held, h);
  for (const SlotMove& m : held.moves) {
    if (m.to.value < slots) mend(rows, held, m.to.value, h);
  }
  mend(rows, held, held.admitted.value, h);
}

void ResidentRows::gather_all(const InterleavedRows& rows, const HeldSlots& held, Head& to) {
  to.stride = (to.slots + kRoom + kLine - 1) / kLine * kLine;
  const std::size_t rows_of_head = kInterleavedRows * to.stride;
  if (to.values.size() < held.group * rows_of_head) to.values.resize(held.group * rows_of_head);
  for (std::uint32_t g = 0; g < held.group; ++g) {
    gather_interleaved(rows.values(to.from, held.head * held.group + g), held.positions,
                       to.values.data() + g * rows_of_head, to.stride);
  }
}

// From the row at hand on; rows before it are not asked for again.
void ResidentRows::mend(const InterleavedRows& rows, const HeldSlots& held, std::size_t slot, Head& to) {
  const TokenPos token = held.positions[slot];
  for (std::uint32_t g = 0; g < held.group; ++g) {
    const float* from = rows.values(to.from, held.head * held.group + g) + token.value * kInterleavedRows;
    float* row = to.values.data() + g * kInterleavedRows * to.stride + slot;
    for (std::size_t at = to.at; at < kInterleavedRows; ++at) row[at * to.stride] = from[at];
  }
}

}  // namespace kvroof
