// How the rows of a tile of slots go from memory to the registers of a warp, in the order in which they are factors.
#pragma once

#include "kernels/cuda/attention_splits.cuh"
#include "kernels/cuda/row_factors.cuh"

namespace kvroof::cuda {

// Slots that a warp meets at once: as many as registers hold of the keys and of the values that set out with them.
template <Stored kType, unsigned kWidth>
constexpr unsigned kTileSlots = kWidth * kBits<kType> <= 1024 ? 32 : 16;

// Which eight of a row is the j-th that a lane has: `lanes` lanes share the row, and `share` is this one's place among
// them. Rows lie 16 bytes apart, so a lane has as many neighbours as it can load at once.
template <Stored kType, unsigned kEights>
constexpr unsigned kAtOnce = kEights * kBits<kType> < 16 ? kEights : 16 / kBits<kType>;
template <Stored kType, unsigned kEights>
KV_DEVICE unsigned eight_of(unsigned j, unsigned share, unsigned lanes) {
  constexpr unsigned kNext = kAtOnce<kType, kEights>;
  return (j / kNext * lanes + share) * kNext + j % kNext;
}
template <unsigned kWidth>
constexpr unsigned kKeyEights = kWidth / 32;  // four lanes share a row
template <unsigned kWidth>
constexpr unsigned kValueEights = kWidth / 64;  // eight lanes

// Weights are kept 2^kLiftedBits times too large until they are parts: f16 has nothing below 2⁻²⁵, and what many tokens
// far from the highest add up to would be lost. Those of integers are factors times the scale of their row, which must
// not leave f16 at its other end: none does with elements up to 1,700, and larger scales are cut. Where all elements
// are below some hundredths, tokens that weigh less than 1e-5 of the highest begin to be lost. (Queries that meet
// integers are factors of f16 as well, up to 65,504.)
template <Stored kType>
constexpr int kLiftedBits = kType == Stored::kBF16 ? 0 : kType == Stored::kF16 ? 14 : kType == Stored::kInt8 ? 12 : 8;
template <Stored kType>
constexpr float kMostScale = kLargestF16 / static_cast<float>(1U << kLiftedBits<kType>);

// What a lane has of a tile's keys: its eights of slots lane / 4, + 8, …
template <Stored kType, unsigned kWidth>
struct Keys {
  Eight<kType> rows[kTileSlots<kType, kWidth> / 8][kKeyEights<kWidth>];
  float scale;             // of slot `lane`
  std::uint32_t position;
};

// Of its values: its eights of slots 2c, 2c + 1, 2c + 8 and 2c + 9 of every sixteen, c = lane mod 4.
template <Stored kType, unsigned kWidth>
struct Values {
  Eight<kType> rows[kTileSlots<kType, kWidth> / 4][kValueEights<kWidth>];
  float scale;  // of slot `lane`
};

// The lane's eights of rows slot_of(0), slot_of(1), …, of which `count` are there, with `dim` columns. What lies
// beyond is zero, or integers. kWhole: all are there, and nothing is asked.
template <bool kWhole, unsigned kLanes, Stored kType, unsigned kRows, unsigned kEights, class SlotOf>
KV_DEVICE void load_rows(const std::byte* rows, std::uint32_t row_bytes, unsigned count, unsigned dim, unsigned share,
                         const SlotOf& slot_of, Eight<kType> (&out)[kRows][kEights]) {
  constexpr unsigned kNext = kAtOnce<kType, kEights>;
  const std::byte* own = rows + share * (kNext * kBits<kType>);
  KV_UNROLL
  for (unsigned n = 0; n < kRows; ++n) {
    const unsigned slot = slot_of(n);
    const std::byte* row = own + std::size_t{slot} * row_bytes;
    KV_UNROLL
    for (unsigned j = 0; j < kEights; j += kNext) {
      std::uint32_t words[kNext * kBits<kType> / 4] = {};
      const bool there = kWhole || (slot < count && eight_of<kType, kEights>(j, share, kLanes) * 8 < dim);
      if (there) load_words<false>(row + j * kLanes * kBits<kType>, words);
      KV_UNROLL
      for (unsigned w = 0; w < kNext * kBits<kType> / 4; ++w) {
        out[n][j + w / (kBits<kType> / 4)].words[w % (kBits<kType> / 4)] = words[w];
      }
    }
  }
}

// Slots [at, at + kTileSlots) of a split.
template <Stored kType, unsigned kWidth>
KV_DEVICE void load_keys(const AttentionArguments& a, const CacheSlots& slots, const KvSplit& split, unsigned at,
                         Keys<kType, kWidth>& keys) {
  const unsigned lane = thread_x() % 32;
  const std::size_t first = std::size_t{split.first} + at;
  const unsigned count = at < split.count ? split.count - at : 0;
  const std::byte* rows = slots.keys + first * a.key_row_bytes;
  const auto slot_of = [&](unsigned n) { return n * 8 + lane / 4; };
  if (count >= kTileSlots<kType, kWidth> && a.head_dim == kWidth) {
    load_rows<true, 4>(rows, a.key_row_bytes, count, a.head_dim, lane % 4, slot_of, keys.rows);
  } else {
    load_rows<false, 4>(rows, a.key_row_bytes, count, a.head_dim, lane % 4, slot_of, keys.rows);
  }
  const bool there = lane < count;
  keys.scale = kBits<kType> < 16 && there ? slots.key_scales[first + lane] : 1.0F;
  keys.position = needs_positions(a) && there ? slots.positions[first + lane] : 0;
}

template <Stored kType, unsigned kWidth>
KV_DEVICE void load_values(const AttentionArguments& a, const CacheSlots& slots, const KvSplit& split,
                           unsigned at, Values<kType, kWidth>& values) {
  const unsigned lane = thread_x() % 32;
  const std::size_t first = std::size_t{split.first} + at;
  const unsigned count = at < split.count ? split.count - at : 0;
  const std::byte* rows = slots.values + first * a.value_row_bytes;
  const auto slot_of = [&](unsigned n) { return n / 4 * 16 + n % 4 / 2 * 8 + lane % 4 * 2 + n % 2; };
  if (count >= kTileSlots<kType, kWidth> && a.value_dim == kWidth) {
    load_rows<true, 8>(rows, a.value_row_bytes, count, a.value_dim, lane / 4, slot_of, values.rows);
  } else {
    load_rows<false, 8>(rows, a.value_row_bytes, count, a.value_dim, lane / 4, slot_of, values.rows);
  }
  values.scale = 1.0F;
  if (kBits<kType> >= 16 || lane >= count) return;
  const float scale = slots.value_scales[first + lane];
  constexpr float kLargestFloat = 3.40282347e38F;  // what is no number is shown
  values.scale = scale > kMostScale<kType> && scale <= kLargestFloat ? kMostScale<kType> : scale;
}

}  // namespace kvroof::cuda
