#include "sim/replay/resident_rows.hpp"

#include <algorithm>
#include <cstring>

namespace kvroof {
namespace {

constexpr std::size_t kCompared = 128;  // slots compared at once

// Slots that come after those there are now before all are gathered again.
constexpr std::size_t kRoom = 2 * kInterleavedRows;

// Vectors that lie across two cache lines cost two accesses.
constexpr std::size_t kLine = 16;  // floats

float* start_of_line(float* begin) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  return begin + (kLine - address / sizeof(float) % kLine) % kLine;
}

}  // namespace

void ResidentRows::show(const ExactRows& rows, std::uint32_t position, const HeldSlots& held) {
  if (heads_.size() <= held.head) heads_.resize(held.head + 1);
  Head& h = heads_[held.head];
  const std::uint32_t first = rows.first_interleaved(position);
  const bool successive = h.from == first && h.at + 1 == position - first;
  const bool gathered = h.from == first && held.positions.size() <= h.stride;
  h.from = first;
  h.at = position - first;
  h.slots = held.positions.size();
  if (!gathered) {
    gather_all(rows, held, h);
  } else if (successive && !held.moved) {
    mend(rows, held, held.admitted.value, h);
  } else {
    mend_all(rows, held, h);
  }
}

void ResidentRows::gather_all(const ExactRows& rows, const HeldSlots& held, Head& to) {
  to.stride = (to.slots + kRoom + kLine - 1) / kLine * kLine;
  if (to.known.size() < to.stride) to.known.resize(to.stride);
  std::copy(held.positions.begin(), held.positions.end(), to.known.begin());
  std::fill(to.known.begin() + static_cast<std::ptrdiff_t>(to.slots), to.known.end(), TokenPos(kNothing));
  const std::size_t rows_of_head = kInterleavedRows * to.stride;
  if (to.values.size() < held.group * rows_of_head + kLine) to.values.resize(held.group * rows_of_head + kLine);
  to.start = start_of_line(to.values.data());
  for (std::uint32_t g = 0; g < held.group; ++g) {
    gather_interleaved(rows.interleaved(to.from, held.head * held.group + g), held.positions,
                       to.start + g * rows_of_head, to.stride);
  }
}

// From the row at hand on; rows before it are not asked for again.
void ResidentRows::mend(const ExactRows& rows, const HeldSlots& held, std::size_t slot, Head& to) {
  const TokenPos token = held.positions[slot];
  to.known[slot] = token;
  for (std::uint32_t g = 0; g < held.group; ++g) {
    const float* from = rows.interleaved(to.from, held.head * held.group + g) + token.value * kInterleavedRows;
    float* row = to.start + g * kInterleavedRows * to.stride + slot;
    for (std::size_t at = to.at; at < kInterleavedRows; ++at) row[at * to.stride] = from[at];
  }
}

void ResidentRows::mend_all(const ExactRows& rows, const HeldSlots& held, Head& to) {
  const std::span<const TokenPos> now = held.positions;
  for (std::size_t begin = 0; begin < now.size(); begin += kCompared) {
    const std::size_t end = std::min(begin + kCompared, now.size());
    if (std::memcmp(&now[begin], &to.known[begin], (end - begin) * sizeof(TokenPos)) == 0) continue;
    for (std::size_t s = begin; s < end; ++s) {
      if (to.known[s] != now[s]) mend(rows, held, s, to);
    }
  }
}

}  // namespace kvroof
