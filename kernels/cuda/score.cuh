// Scores of a policy beside the cache: each row's attention is added to them, and the victim is found on the way.
//
// A run of decode attention is kScoreBlocks of these; of a piece of one storage head a thread takes every
// kScoreThreads-th slot. Weights are exact: exp(logit − log-sum-exp) of the logits that attention left behind, which
// the second-level cache still holds. The block that finishes a head's last part writes the victim's slot for the next
// token.
#pragma once

#include "kernels/cuda/attention_parts.cuh"
#include "kernels/cuda/kernels.hpp"
#include "sim/core/gumbel.hpp"

namespace kvroof::cuda {

constexpr unsigned kScoreThreads = 128;  // of blocks that walk runs
constexpr unsigned kRowThreads = 256;    // of those that take a slot a thread
static_assert(kRowSlots == kRowThreads);
constexpr std::uint64_t kNoKey = ~std::uint64_t{0};

// The units of one storage head and what a row says of it.
struct ScoreHead {
  std::uint32_t unit = 0;  // the first
  std::uint32_t head = 0;  // storage head of the layer
  std::uint32_t query = 0;
  StepRow row;
  CacheSlots slots;
};

KV_DEVICE ScoreHead score_head(const ScoreArguments& a, std::uint32_t unit) {
  const std::uint32_t sequence = a.units[unit].sequence;
  return {unit, unit / a.passes % a.storage_heads, a.query[sequence], a.rows[sequence], a.units[unit].slots};
}

// Of query head g of a storage head: which of its units it is in, and its place there.
KV_DEVICE unsigned pass_of(const ScoreArguments& a, unsigned g) { return a.passes == 1 ? 0 : g / a.kernel_group; }
KV_DEVICE unsigned place_of(const ScoreArguments& a, unsigned g) { return g - pass_of(a, g) * a.kernel_group; }

KV_DEVICE float logit_of(const ScoreArguments& a, std::uint32_t unit, std::uint32_t slot, unsigned g) {
  return a.units[unit + pass_of(a, g)].slots.logits[std::size_t{slot} * a.kernel_group + place_of(a, g)];
}

// What memory has of a slot, asked for at once and for several slots before the first is used: memory is far away.
constexpr unsigned kSlotsAtOnce = 4;
struct SlotState {
  std::uint32_t position = 0;
  float score = 0;  // sums only
  float logit = kNever;
  float noise = 0;  // one draw a token only; logit and noise are the first query head's
};

KV_DEVICE bool keeps_noise(const ScoreArguments& a) { return a.noise == ScoreNoise::kPerToken; }
KV_DEVICE const std::uint32_t* kept_noise(const ScoreHead& h, std::uint32_t slot, unsigned g) {
  return h.slots.state + std::size_t{1 + g} * h.slots.stride + slot;
}

template <bool kScores>
KV_DEVICE SlotState load_slot(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot) {
  SlotState s;
  s.position = h.slots.positions[slot];
  s.logit = logit_of(a, h.unit, slot, 0);
  if (kScores && a.kind != ScoreKind::kCounts) s.score = float_of(h.slots.state[slot]);
  if (keeps_noise(a)) s.noise = float_of(*kept_noise(h, slot, 0));
  return s;
}

// The noise on the logit of query head g; draws and keeps that of a row's own token where there is one draw a token.
KV_DEVICE float noise_on(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, unsigned g,
                         const SlotState& s) {
  if (a.noise == ScoreNoise::kNone) return 0;
  const bool keeps = keeps_noise(a);
  if (keeps && s.position != h.query) return g == 0 ? s.noise : float_of(*kept_noise(h, slot, g));
  NoiseKey key = {a.seed, h.row.sequence, a.layer, h.head * a.group + g, s.position};
  if (!keeps) key.query_position = h.query;
  const float noise = gumbel_draw(key);
  if (keeps) h.slots.state[std::size_t{1 + g} * h.slots.stride + slot] = bits_of(noise);
  return noise;
}

KV_DEVICE float logit_of(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, unsigned g,
                         const SlotState& s) {
  return g == 0 ? s.logit : logit_of(a, h.unit, slot, g);
}

// Calls body(slot, its state) for every threads_x()-th slot of [first, first + count). kScores: states have theirs.
template <bool kScores, class Body>
KV_DEVICE void for_slots(const ScoreArguments& a, const ScoreHead& h, std::uint32_t first, std::uint32_t count,
                         const Body& body) {
  KV_UNROLL_BY(1)
  for (std::uint32_t at = thread_x(); at < count; at += kSlotsAtOnce * threads_x()) {
    SlotState states[kSlotsAtOnce];
    KV_UNROLL
    for (unsigned n = 0; n < kSlotsAtOnce; ++n) {
      const std::uint32_t i = at + n * threads_x();
      if (i < count) states[n] = load_slot<kScores>(a, h, first + i);
    }
    KV_UNROLL
    for (unsigned n = 0; n < kSlotsAtOnce; ++n) {
      const std::uint32_t i = at + n * threads_x();
      if (i < count) body(first + i, states[n]);
    }
  }
}

// The greatest of some x, and the sum of exp(x − greatest).
struct ExpSum {
  float highest, sum;
};

// Of query head g: a thread's x = (logit + noise) / temperature, of its slots of the piece.
KV_DEVICE ExpSum noisy_sum_of_thread(const ScoreArguments& a, const ScoreHead& h, const RunPiece& piece, unsigned g) {
  ExpSum met = {kNever, 0.0F};
  for_slots<false>(a, h, piece.first, piece.count, [&](std::uint32_t slot, const SlotState& s) {
    const float logit = logit_of(a, h, slot, g, s);
    if (logit <= kNever) return;
    const float x = (logit + noise_on(a, h, slot, g, s)) / h.row.temperature;
    const float highest = higher_of(met.highest, x);
    met.sum = met.sum * exp_of(met.highest - highest) + exp_of(x - highest);
    met.highest = highest;
  });
  return met;
}

// Those of the block, in every thread; `warps` has a place for each warp.
KV_DEVICE ExpSum join_over_block(const ExpSum& met, ExpSum* warps) {
  ExpSum all = {max_over(met.highest, 32), 0.0F};
  all.sum = sum_over(met.sum * exp_of(met.highest - all.highest), 32);
  sync_block();
  if (thread_x() % 32 == 0) warps[thread_x() / 32] = all;
  sync_block();
  for (unsigned w = 0; w < kScoreThreads / 32; ++w) {
    all.highest = warps[w].highest > all.highest ? warps[w].highest : all.highest;
  }
  all.sum = 0;
  for (unsigned w = 0; w < kScoreThreads / 32; ++w) all.sum += warps[w].sum * exp_of(warps[w].highest - all.highest);
  return all;
}

// The max and sum of exp((logit + noise) / temperature) over a piece's slots, for each query head; a block of
// kScoreThreads for each run.
KV_PLAIN_KERNEL KV_RESIDENT(kScoreThreads, 9) void noisy_sums(ScoreArguments a) {
  KV_SHARED(ExpSum, warps, kScoreThreads / 32);
  RunWalk walk = run_of_block(a);
  RunPiece piece;
  bool there = next_piece(a, walk, piece);
  await_previous();
  for (; there; there = next_piece(a, walk, piece)) {
    if (piece.unit % a.passes != 0) continue;
    const ScoreHead h = score_head(a, piece.unit);
    for (unsigned g = 0; g < a.group; ++g) {
      const ExpSum all = join_over_block(noisy_sum_of_thread(a, h, piece, g), warps);
      const std::size_t at = (std::size_t{h.unit + pass_of(a, g)} * a.most_parts + piece.part) * a.kernel_group;
      if (thread_x() != 0) continue;
      a.noisy_max[at + place_of(a, g)] = all.highest;
      a.noisy_sum[at + place_of(a, g)] = all.sum;
    }
  }
}

// The log-sum-exp of the noisy logits of query head g, from its parts; for all lanes of a warp.
KV_DEVICE float noisy_log_sum(const ScoreArguments& a, const ScoreHead& h, unsigned g) {
  const std::uint32_t parts = parts_of(a, a.units[h.unit], h.row.length);
  const std::size_t first = std::size_t{h.unit + pass_of(a, g)} * a.most_parts;
  const unsigned lane = thread_x() % 32;
  float highest = kNever;
  KV_UNROLL_BY(1)
  for (unsigned p = lane; p < parts; p += 32) {
    const float other = a.noisy_max[(first + p) * a.kernel_group + place_of(a, g)];
    highest = other > highest ? other : highest;
  }
  highest = max_over(highest, 32);
  float total = 0;
  KV_UNROLL_BY(1)
  for (unsigned p = lane; p < parts; p += 32) {
    const std::size_t at = (first + p) * a.kernel_group + place_of(a, g);
    total += a.noisy_sum[at] * exp_of(a.noisy_max[at] - highest);
  }
  return highest + logf(sum_over(total, 32));
}

// The log-sum that each query head's weights are relative to, into `sums`; for all threads of the block.
KV_DEVICE void load_log_sums(const ScoreArguments& a, const ScoreHead& h, float* sums) {
  sync_block();
  for (unsigned g = thread_x() / 32; g < a.group; g += threads_x() / 32) {
    const std::size_t at = std::size_t{h.unit + pass_of(a, g)} * a.kernel_group + place_of(a, g);
    const float sum = a.kind == ScoreKind::kNoisySum ? noisy_log_sum(a, h, g) : a.log_sums[at];
    if (thread_x() % 32 == 0) sums[g] = sum;
  }
  sync_block();
}

// The weights of a slot, reduced over the group.
KV_DEVICE float reduced_weight(const ScoreArguments& a, const ScoreHead& h, const float* sums, std::uint32_t slot,
                               const SlotState& s) {
  float reduced = 0;
  for (unsigned g = 0; g < a.group; ++g) {
    float x = logit_of(a, h, slot, g, s);
    if (x <= kNever) continue;
    if (a.kind == ScoreKind::kNoisySum) x = (x + noise_on(a, h, slot, g, s)) / h.row.temperature;
    const float weight = exp_of(x - sums[g]);
    if (a.reduction == ScoreReduction::kMax) {
      reduced = weight > reduced ? weight : reduced;
    } else {
      reduced += weight;
    }
  }
  return a.reduction == ScoreReduction::kMean ? reduced * (1.0F / static_cast<float>(a.group)) : reduced;
}

// Adds a row to the count of a slot, and what leaves the history out of it; a ring of one bit a row remembers.
KV_DEVICE float counted(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, float weight, bool is_new) {
  std::uint32_t* count = h.slots.state + slot;
  if (is_new) {
    for (unsigned c = 0; c < 1 + (a.history + 31) / 32; ++c) count[std::size_t{c} * h.slots.stride] = 0;
  }
  const std::uint32_t row = h.query % a.history;
  std::uint32_t* ring = count + std::size_t{1 + row / 32} * h.slots.stride;
  const std::uint32_t hit = (a.counts_low ? weight < h.row.threshold : weight > h.row.threshold) ? 1 : 0;
  const std::uint32_t gone = *ring >> (row % 32) & 1U;
  *count += hit - gone;
  *ring ^= (hit ^ gone) << (row % 32);
  const auto value = static_cast<float>(*count);
  return a.counts_low ? -value : value;
}

// The slot's score after the row: the lowest goes.
KV_DEVICE float scored(const ScoreArguments& a, const ScoreHead& h, const float* sums, std::uint32_t slot,
                       const SlotState& s) {
  const float weight = reduced_weight(a, h, sums, slot, s);
  const bool is_new = s.position == h.query;
  if (a.kind == ScoreKind::kCounts) return counted(a, h, slot, weight, is_new);
  const float score = (is_new ? 0.0F : s.score) + weight;
  h.slots.state[slot] = bits_of(score);
  return score;
}

// A slot's place in the order of leaving. What the window hides from the next query goes before all others.
KV_DEVICE std::uint64_t victim_key(const ScoreArguments& a, const ScoreHead& h, std::uint32_t position, float score) {
  if (a.window > 0 && position + a.window == h.query + 1) return position;
  if (h.row.evicts == 0 || position + h.row.recent > h.query) return kNoKey;
  return std::uint64_t{ordered_bits(score)} << 32 | position;
}

// The parts' victims become that of the head and of those after it that keep the same set, `heads` in all; run by the
// first warp of the block that finished the last of them.
KV_DEVICE void choose_victim(const ScoreArguments& a, const ScoreHead& h, const Victim* victims, std::uint32_t parts,
                             std::uint32_t heads) {
  Victim best;
  for (unsigned p = thread_x(); p < parts; p += 32) best = victims[p].key < best.key ? victims[p] : best;
  const std::uint64_t least = lowest_over_warp(best.key);
  const bool hidden = least >> 32 == 0;
  for (std::uint32_t head = 0; head < heads; ++head) {
    if (thread_x() == 0) {
      a.evicted[h.unit / a.passes + head] = least == kNoKey || hidden ? kNoToken : static_cast<std::uint32_t>(least);
    }
    if (least != kNoKey && best.key == least) *a.units[h.unit + head * a.passes].slots.next = best.slot;
  }
}

// The slot of the lowest key that this thread has met; the block's lowest goes to `victim`.
KV_DEVICE void give_up_lowest(const Victim& best, std::uint64_t* scratch, Victim* victim) {
  const std::uint64_t least = lowest_over_block(best.key, scratch);
  if (least == kNoKey ? thread_x() == 0 : best.key == least) *victim = best;
}

KV_DEVICE void meet_victim(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, std::uint32_t position,
                           float score, Victim& best) {
  const std::uint64_t key = victim_key(a, h, position, score);
  if (key < best.key) best = {key, slot};
}

// A block of kScoreThreads for each run.
KV_PLAIN_KERNEL KV_RESIDENT(kScoreThreads, 9) void update_scores(ScoreArguments a) {
  KV_SHARED(float, sums, kMostScoreGroup);
  KV_SHARED(std::uint64_t, keys, kScoreThreads / 32);
  KV_SHARED(unsigned, before, 1);
  RunWalk walk = run_of_block(a);
  RunPiece piece;
  bool there = next_piece(a, walk, piece);  // the host sent what says it before a step's launches
  await_previous();
  for (; there; there = next_piece(a, walk, piece)) {
    if (piece.unit % a.passes != 0) continue;
    const ScoreHead h = score_head(a, piece.unit);
    load_log_sums(a, h, sums);
    Victim* victims = a.victims + std::size_t{h.unit} * a.most_parts;
    Victim best;
    for_slots<true>(a, h, piece.first, piece.count, [&](std::uint32_t slot, const SlotState& s) {
      meet_victim(a, h, slot, s.position, scored(a, h, sums, slot, s), best);
    });
    give_up_lowest(best, keys, victims + piece.part);
    finish_part(a.finished + h.unit, piece.parts, before, [&] {
      if (thread_x() < 32) choose_victim(a, h, victims, piece.parts, 1);
    });
  }
}

// The weights of a slot, summed over all query heads of the layer in their order; `unit` is the sequence's first.
KV_DEVICE float layer_weight(const ScoreArguments& a, std::uint32_t unit, std::uint32_t slot) {
  float sum = 0;
  KV_UNROLL_BY(8)
  for (unsigned q = 0; q < a.storage_heads * a.group; ++q) {
    const std::uint32_t head = unit + q / a.group * a.passes;
    const unsigned g = q % a.group;
    const float x = logit_of(a, head, slot, g);
    const float log_sum = a.log_sums[std::size_t{head + pass_of(a, g)} * a.kernel_group + place_of(a, g)];
    sum += x <= kNever ? 0.0F : exp_of(x - log_sum);
  }
  return sum;
}

// The scores of rows whose sequence keeps one set for all heads of the layer, which so have equal tokens in equal
// slots. Blocks of kRowThreads, x over parts of kRowSlots, y over sequences.
KV_PLAIN_KERNEL void last_row_scores(ScoreArguments a) {
  KV_SHARED(std::uint64_t, keys, kRowThreads / 32);
  KV_SHARED(unsigned, before, 1);
  await_previous();
  const ScoreHead h = score_head(a, block_y() * a.storage_heads * a.passes);
  const std::uint32_t first = block_x() * kRowSlots;
  if (first >= h.row.length) return;
  const std::uint32_t count = h.row.length - first < kRowSlots ? h.row.length - first : kRowSlots;
  Victim* victims = a.victims + std::size_t{block_y()} * a.row_parts;
  Victim best;
  if (thread_x() < count) {
    const std::uint32_t slot = first + thread_x();
    const float score = layer_weight(a, h.unit, slot);
    h.slots.state[slot] = bits_of(score);
    meet_victim(a, h, slot, h.slots.positions[slot], score, best);
  }
  give_up_lowest(best, keys, victims + block_x());
  if (a.queries > 0) return;  // of a prompt
  const std::uint32_t parts = (h.row.length + kRowSlots - 1) / kRowSlots;
  finish_part(a.finished + h.unit, parts, before, [&] {
    if (thread_x() < 32) choose_victim(a, h, victims, parts, a.storage_heads);
  });
}

// Consecutive rows of a prompt, in order: a thread a slot, y over storage heads. Token i lies in slot i; `sums` are
// those of one row after the other, and unit (query · heads + head) · passes is a query's.
KV_PLAIN_KERNEL void observe_prompt(ScoreArguments a) {
  KV_SHARED(float, sums, kMostScoreGroup);
  await_previous();
  const std::uint32_t slot = block_x() * kRowThreads + thread_x();
  for (std::uint32_t q = 0; q < a.queries; ++q) {
    const ScoreHead h = score_head(a, (q * a.storage_heads + block_y()) * a.passes);
    load_log_sums(a, h, sums);
    const bool seen = slot <= h.query && (a.window == 0 || slot + a.window > h.query);
    if (seen) scored(a, h, sums, slot, load_slot<true>(a, h, slot));
  }
}

}  // namespace kvroof::cuda
