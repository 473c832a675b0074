// How the rows of a tile of slots go from memory to the registers of a warp, in the order in which they are factors.
//
// Each lane copies what it will itself need, beside what it does, into a ring of shared memory: registers hold only the
// rows that are met, and more of what is next is on its way than registers would hold. No lane reads what another one
// copied, so that nobody waits for anybody.
#pragma once

#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/row_factors.cuh"

namespace kvroof::cuda {

// Slots that a warp meets at once.
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

KV_DEVICE unsigned key_slot(unsigned n) { return n * 8 + thread_x() % 32 / 4; }
KV_DEVICE unsigned value_slot(unsigned n) { return n / 4 * 16 + n % 4 / 2 * 8 + thread_x() % 4 * 2 + n % 2; }

// A place of the ring takes half a tile, its keys or its values: words of rows, those that a thread copies at once side
// by side, then of each thread a scale and a position.
template <Stored kType, unsigned kWidth>
constexpr unsigned kLaneBytes = kTileSlots<kType, kWidth> / 8 * kKeyEights<kWidth> * kBits<kType>;
template <Stored kType, unsigned kWidth>
constexpr unsigned kPlaceBytes = (kLaneBytes<kType, kWidth> + 8) * kAttentionThreads;
// So many that three blocks find room in a multiprocessor's shared memory, or two of wide rows.
template <Stored kType, unsigned kWidth>
constexpr unsigned kPlaces = kPlaceBytes<kType, kWidth> > 20000 ? 2 : kPlaceBytes<kType, kWidth> > 10000 ? 3 : 4;
template <Stored kType, unsigned kWidth>
constexpr unsigned kRingBytes = kPlaces<kType, kWidth> * kPlaceBytes<kType, kWidth>;

// Where this thread has its c-th chunk of kBytes, and its scale and its position.
template <unsigned kBytes>
KV_DEVICE std::byte* chunk_of(std::byte* place, unsigned c) {
  return place + (c * kAttentionThreads + thread_x()) * kBytes;
}
template <unsigned kRowBytes>
KV_DEVICE std::byte* scale_of(std::byte* place) {
  return place + (kRowBytes * kAttentionThreads + thread_x() * 4);
}
template <unsigned kRowBytes>
KV_DEVICE std::byte* position_of(std::byte* place) {
  return scale_of<kRowBytes>(place) + kAttentionThreads * 4;
}

// Has the lane's eights of rows slot_of(0), slot_of(1), …, of which `count` are there, with `dim` columns, set out to
// `place`. What lies beyond is zero. kWhole: all are there, and nothing is asked.
template <bool kWhole, unsigned kLanes, Stored kType, unsigned kRows, unsigned kEights, class SlotOf>
KV_DEVICE void send_rows(const std::byte* rows, std::uint32_t row_bytes, unsigned count, unsigned dim, unsigned share,
                         const SlotOf& slot_of, std::byte* place) {
  constexpr unsigned kNext = kAtOnce<kType, kEights>;
  constexpr unsigned kBytes = kNext * kBits<kType>;
  const std::byte* own = rows + share * kBytes;
  KV_UNROLL
  for (unsigned n = 0; n < kRows; ++n) {
    const unsigned slot = slot_of(n);
    const std::byte* row = own + std::size_t{slot} * row_bytes;
    KV_UNROLL
    for (unsigned j = 0; j < kEights; j += kNext) {
      const bool there = kWhole || (slot < count && eight_of<kType, kEights>(j, share, kLanes) * 8 < dim);
      start_copy<kBytes>(chunk_of<kBytes>(place, (n * kEights + j) / kNext),
                         there ? row + j * kLanes * kBits<kType> : rows, there);
    }
  }
}

// What the lane sent there.
template <Stored kType, unsigned kRows, unsigned kEights>
KV_DEVICE void take_rows(std::byte* place, Eight<kType> (&out)[kRows][kEights]) {
  constexpr unsigned kNext = kAtOnce<kType, kEights>;
  constexpr unsigned kWords = kBits<kType> / 4;
  KV_UNROLL
  for (unsigned c = 0; c < kRows * kEights / kNext; ++c) {
    std::uint32_t words[kNext * kWords];
    load_words<true>(chunk_of<kNext * kBits<kType>>(place, c), words);
    KV_UNROLL
    for (unsigned w = 0; w < kNext * kWords; ++w) {
      const unsigned eight = c * kNext + w / kWords;
      out[eight / kEights][eight % kEights].words[w % kWords] = words[w];
    }
  }
}

// What of a block's run sets out next, for a warp: half tiles in the order in which they are met, over the ends of
// pieces.
struct Sending {
  RunWalk walk;
  RunPiece piece;  // count 0: nothing is left
  const std::byte* keys = nullptr;  // of the piece's unit
  const std::byte* values = nullptr;
  unsigned at = 0;      // slot of the piece
  bool half = false;    // false: the tile's keys are next, true: its values
  unsigned place = 0;   // of the ring: the oldest half tile's, once that was taken
};

// The keys of the next tile, and its values.
template <Stored kType, unsigned kWidth>
KV_DEVICE void send_keys(const AttentionArguments& a, const Sending& next, std::byte* place) {
  constexpr unsigned kRows = kTileSlots<kType, kWidth> / 8;
  constexpr unsigned kEights = kKeyEights<kWidth>;
  const RunPiece& piece = next.piece;
  const unsigned lane = thread_x() % 32;
  const std::size_t first = std::size_t{piece.first} + next.at;
  const unsigned count = piece.count - next.at;
  const std::byte* rows = next.keys + first * a.key_row_bytes;
  if (count >= kTileSlots<kType, kWidth> && a.head_dim == kWidth) {
    send_rows<true, 4, kType, kRows, kEights>(rows, a.key_row_bytes, count, kWidth, lane % 4, key_slot, place);
  } else {
    send_rows<false, 4, kType, kRows, kEights>(rows, a.key_row_bytes, count, a.head_dim, lane % 4, key_slot, place);
  }
  constexpr unsigned kLane = kLaneBytes<kType, kWidth>;
  const bool there = lane < count;
  const std::size_t own = there ? first + lane : first;
  const CacheSlots& slots = a.units[piece.unit].slots;
  if (kBits<kType> < 16) start_copy<4>(scale_of<kLane>(place), slots.key_scales + own, there);
  if (needs_positions(a)) start_copy<4>(position_of<kLane>(place), slots.positions + own, there);
}

template <Stored kType, unsigned kWidth>
KV_DEVICE void send_values(const AttentionArguments& a, const Sending& next, std::byte* place) {
  constexpr unsigned kRows = kTileSlots<kType, kWidth> / 4;
  constexpr unsigned kEights = kValueEights<kWidth>;
  const RunPiece& piece = next.piece;
  const unsigned lane = thread_x() % 32;
  const std::size_t first = std::size_t{piece.first} + next.at;
  const unsigned count = piece.count - next.at;
  const std::byte* rows = next.values + first * a.value_row_bytes;
  if (count >= kTileSlots<kType, kWidth> && a.value_dim == kWidth) {
    send_rows<true, 8, kType, kRows, kEights>(rows, a.value_row_bytes, count, kWidth, lane / 4, value_slot, place);
  } else {
    send_rows<false, 8, kType, kRows, kEights>(rows, a.value_row_bytes, count, a.value_dim, lane / 4, value_slot,
                                               place);
  }
  const bool there = lane < count;
  if (kBits<kType> < 16) {
    const float* scales = a.units[piece.unit].slots.value_scales;
    start_copy<4>(scale_of<kLaneBytes<kType, kWidth>>(place), scales + (there ? first + lane : first), there);
  }
}

template <Stored kType, unsigned kWidth>
KV_DEVICE void take_keys(const AttentionArguments& a, std::byte* place, Keys<kType, kWidth>& keys) {
  constexpr unsigned kLane = kLaneBytes<kType, kWidth>;
  take_rows<kType>(place, keys.rows);
  keys.scale = kBits<kType> < 16 ? *reinterpret_cast<const float*>(scale_of<kLane>(place)) : 1.0F;
  keys.position = needs_positions(a) ? *reinterpret_cast<const std::uint32_t*>(position_of<kLane>(place)) : 0;
}

template <Stored kType, unsigned kWidth>
KV_DEVICE void take_values(std::byte* place, Values<kType, kWidth>& values) {
  constexpr unsigned kLane = kLaneBytes<kType, kWidth>;
  take_rows<kType>(place, values.rows);
  values.scale = kBits<kType> < 16 ? *reinterpret_cast<const float*>(scale_of<kLane>(place)) : 1.0F;
}

template <Stored kType, unsigned kWidth>
constexpr unsigned kRound = kAttentionWarps * kTileSlots<kType, kWidth>;  // slots that the block's warps meet at once

// Goes on to the warp's next tile, where it has none of this piece left.
template <Stored kType, unsigned kWidth>
KV_DEVICE void skip_pieces(const AttentionArguments& a, Sending& next) {
  while (next.at >= next.piece.count) {
    if (!next_piece(a, next.walk, next.piece)) return;
    const CacheSlots& slots = a.units[next.piece.unit].slots;
    next.keys = slots.keys;
    next.values = slots.values;
    next.at = thread_x() / 32 * kTileSlots<kType, kWidth>;
  }
}

template <Stored kType, unsigned kWidth>
KV_DEVICE void send_half(const AttentionArguments& a, std::byte* ring, Sending& next) {
  std::byte* place = ring + next.place * kPlaceBytes<kType, kWidth>;
  next.place = next.place + 1 < kPlaces<kType, kWidth> ? next.place + 1 : 0;
  if (next.piece.count > 0) {
    if (next.half) {
      send_values<kType, kWidth>(a, next, place);
      next.at += kRound<kType, kWidth>;
      skip_pieces<kType, kWidth>(a, next);
    } else {
      send_keys<kType, kWidth>(a, next, place);
    }
    next.half = !next.half;
  }
  commit_copies();  // of nothing as well: what is awaited is counted
}

// The oldest half tile has come. It is taken from its place before the next send_half().
template <Stored kType, unsigned kWidth>
KV_DEVICE std::byte* oldest_half(std::byte* ring, const Sending& next) {
  await_copies<kPlaces<kType, kWidth> - 1>();
  return ring + next.place * kPlaceBytes<kType, kWidth>;
}

}  // namespace kvroof::cuda
