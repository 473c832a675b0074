// Which tokens of a head have the lowest scores, of equals the oldest, when many go at once: a radix select.
//
// Scores in the order of unsigned numbers, then positions, are keys of 64 bits, of which no two are equal: the result
// depends on no order of threads. A block takes a head. From the leading digit on, it counts how many keys have each
// value of the digit, and goes on with those among which the last one that goes must be. Scores seldom share more than
// three digits; positions are looked at where they are equal.
#pragma once

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/score_arguments.hpp"

namespace kvroof::cuda {

constexpr unsigned kChooseThreads = 512;
constexpr unsigned kDigits = 256;
constexpr std::uint64_t kStays = ~std::uint64_t{0};  // the key of a token that may not go

KV_DEVICE std::uint64_t leaving_key(const ChooseArguments& a, const CacheSlots& slots, std::uint32_t slot) {
  if (slot >= a.length) return kStays;
  const std::uint32_t position = slots.positions[slot];
  if (position < a.first || position >= a.end) return kStays;
  const std::uint32_t state = slots.state[slot];
  float score = float_of(state);
  if (a.kind == ScoreKind::kCounts) score = a.counts_low ? -static_cast<float>(state) : static_cast<float>(state);
  return std::uint64_t{ordered_bits(score + 0.0F)} << 32 | position;  // −0 equals 0
}

// Of the keys that begin with `prefix`, how many have each value of the digit from bit `shift` on.
KV_DEVICE void count_digits(const ChooseArguments& a, const CacheSlots& slots, std::uint64_t prefix, unsigned shift,
                            unsigned* counts) {
  sync_block();
  for (unsigned d = thread_x(); d < kDigits; d += kChooseThreads) counts[d] = 0;
  sync_block();
  for (std::uint32_t base = 0; base < a.length; base += kChooseThreads) {
    const std::uint64_t key = leaving_key(a, slots, base + thread_x());
    const bool counts_here = key != kStays && (shift + 8 == 64 || key >> (shift + 8) == prefix);
    const auto digit = static_cast<unsigned>(key >> shift) % kDigits;
    // Scores of a head are close: most of a warp's share their leading digits, and are counted at once.
    const unsigned common = from_lane(digit, 0);
    const std::uint32_t mates = lanes_where(counts_here && digit == common);
    if (thread_x() % 32 == 0 && mates != 0) add_atomic(counts + common, count_bits(mates));
    if (counts_here && digit != common) add_atomic(counts + digit, 1);
  }
  sync_block();
}

struct DigitFound {
  unsigned digit;
  unsigned before;  // keys of smaller digits
  unsigned within;  // keys of this one
};

// The digit of the key that `rank` keys do not exceed, itself included; where there are not so many, one above all. For
// the first warp.
KV_DEVICE void find_digit(const unsigned* counts, unsigned rank, DigitFound* found) {
  constexpr unsigned kOfLane = kDigits / 32;
  const unsigned lane = thread_x();
  unsigned own = 0;
  for (unsigned d = 0; d < kOfLane; ++d) own += counts[lane * kOfLane + d];
  unsigned upto = own;
  for (unsigned step = 1; step < 32; step *= 2) {
    const unsigned other = from_lane(upto, (lane + 32 - step) % 32);
    if (lane >= step) upto += other;
  }
  if (lane == 31 && upto < rank) *found = {kDigits - 1, 0, rank};
  unsigned before = upto - own;
  if (before >= rank || upto < rank) return;
  for (unsigned d = lane * kOfLane;; ++d) {
    if (before + counts[d] >= rank) {
      *found = {d, before, counts[d]};
      return;
    }
    before += counts[d];
  }
}

// Blocks of kChooseThreads, one a head.
KV_PLAIN_KERNEL void choose_lowest(ChooseArguments a) {
  KV_SHARED(unsigned, counts, kDigits);
  KV_SHARED(DigitFound, found, 1);
  await_previous();
  const CacheSlots slots = a.slots[block_x()];
  std::uint64_t prefix = 0;
  unsigned rank = a.count;  // of the last key that goes, from 1, among those that begin with the prefix
  unsigned shift = 64;
  do {
    shift -= 8;
    count_digits(a, slots, prefix, shift, counts);
    if (thread_x() < 32) find_digit(counts, rank, found);
    sync_block();
    prefix = prefix << 8 | found->digit;
    rank -= found->before;
  } while (shift > 0 && found->within != rank);  // else all that begin with the prefix go
  const std::uint32_t words = (a.length + 31) / 32;
  for (std::uint32_t base = 0; base < words * 32; base += kChooseThreads) {
    const std::uint64_t key = leaving_key(a, slots, base + thread_x());
    const std::uint32_t chosen = lanes_where(key != kStays && key >> shift <= prefix);
    const std::uint32_t word = (base + thread_x()) / 32;
    if (thread_x() % 32 == 0 && word < words) a.chosen[std::size_t{block_x()} * words + word] = chosen;
  }
}

}  // namespace kvroof::cuda
