// Scores of a policy beside the cache: each row's attention is added to them, and the victim is found on the way.
//
// Weights are exact: exp(logit − log-sum-exp) of the logits that attention left behind, which the second-level cache
// still holds: rows of k and v pass it as what is read once. While decoding, the block of attention that ends a short
// unit goes on with score_unit(): it and what the blocks beside it read fill the memory's time together. Else launches
// of their own have kScoreBlocks blocks for each of attention's; of a split of one storage head a thread takes every
// kScoreThreads-th slot, and the block that finishes a head's last split writes the victim's slot for the next token.
#pragma once

#include "kernels/cuda/attention_splits.cuh"
#include "kernels/cuda/kernels.hpp"
#include "sim/core/gumbel.hpp"

namespace kvroof::cuda {

constexpr unsigned kScoreThreads = 128;  // of blocks that meet splits
constexpr std::uint64_t kNoKey = ~std::uint64_t{0};

// The units of one storage head and what a row says of it.
struct ScoreHead {
  std::uint32_t unit = 0;  // the first
  std::uint32_t head = 0;  // storage head of the layer
  std::uint32_t query = 0;
  float coldness = 1;  // 1 / temperature
  StepRow row;
  CacheSlots slots;
};

KV_DEVICE ScoreHead score_head(const ScoreArguments& a, std::uint32_t unit) {
  const std::uint32_t sequence = a.units[unit].sequence;
  const StepRow row = a.rows[sequence];
  const std::uint32_t head = unit / a.passes % a.storage_heads;
  return {unit, head, a.query[sequence], 1.0F / row.temperature, row, a.units[unit].slots};
}

// Below, kInAttention (scores_with_attention()): a storage head has one unit, and noise, if there is any, is kept.

// Of query head g of a storage head: which of its units it is in, and its place there.
template <bool kInAttention>
KV_DEVICE unsigned pass_of(const ScoreArguments& a, unsigned g) {
  return kInAttention || a.passes == 1 ? 0 : g / a.kernel_group;
}
template <bool kInAttention>
KV_DEVICE std::size_t place_of(const ScoreArguments& a, std::size_t row, unsigned g) {
  return row * a.kernel_group + (g - pass_of<kInAttention>(a, g) * a.kernel_group);
}
template <bool kInAttention>
KV_DEVICE float logit_of(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, unsigned g) {
  const float* logits = kInAttention ? h.slots.logits : a.units[h.unit + pass_of<false>(a, g)].slots.logits;
  return logits[place_of<kInAttention>(a, slot, g)];
}

// Slots of a thread, `step` apart; those from `end` on are not there.
struct SlotRow {
  std::uint32_t first, end, step;
  KV_DEVICE std::uint32_t at(unsigned n) const { return first + n * step; }
  KV_DEVICE bool has(unsigned n) const { return at(n) < end; }
};
// So many, that a thread asks for together: memory is far away. (A budget of a power of two holds one more slot.)
constexpr unsigned kSlotsAtOnce = 5;

// Calls body(slots) for every threads_x()-th slot of the split, kSlotsAtOnce of them together.
template <class Body>
KV_DEVICE void for_slots(const KvSplit& split, const Body& body) {
  const std::uint32_t end = split.first + split.count;
  KV_UNROLL_BY(1)
  for (std::uint32_t at = split.first + thread_x(); at < end; at += kSlotsAtOnce * threads_x()) {
    body(SlotRow{at, end, threads_x()});
  }
}

KV_DEVICE bool keeps_noise(const ScoreArguments& a) { return a.noise == ScoreNoise::kPerToken; }
KV_DEVICE std::uint32_t* kept_noise(const ScoreHead& h, std::uint32_t slot, unsigned g) {
  return h.slots.state + std::size_t{1 + g} * h.slots.stride + slot;
}

KV_DEVICE NoiseKey noise_key(const ScoreArguments& a, const ScoreHead& h, unsigned g, std::uint32_t position) {
  return {a.seed, h.row.sequence, a.layer, h.head * a.group + g, position};
}

// The noise on the logit of query head g.
template <bool kInAttention>
KV_DEVICE float noise_on(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, unsigned g) {
  if (kInAttention || keeps_noise(a)) return float_of(*kept_noise(h, slot, g));
  NoiseKey key = noise_key(a, h, g, h.slots.positions[slot]);
  key.query_position = h.query;
  return gumbel_draw(key);
}

// Where there is one draw a token, and the row's own token lies in the split: draws its noise, before any is read.
// Those of a prompt are drawn before its rows.
KV_DEVICE void keep_own_noise(const ScoreArguments& a, const ScoreHead& h, const KvSplit& split) {
  if (!keeps_noise(a) || a.queries > 0) return;
  const std::uint32_t slot = h.row.slot == kOwnSlot ? *h.slots.next : h.row.slot;
  if (slot - split.first < split.count) {
    for (unsigned g = thread_x(); g < a.group; g += threads_x()) {
      *kept_noise(h, slot, g) = bits_of(gumbel_draw(noise_key(a, h, g, h.query)));
    }
  }
  sync_block();
}

// What weights of query head g are made of: logits, or (logit + noise) / temperature; kNever where nothing is seen.
template <bool kInAttention, unsigned kSlots>
KV_DEVICE void load_logits(const ScoreArguments& a, const ScoreHead& h, const SlotRow& slots, unsigned g,
                           float (&x)[kSlots]) {
  KV_UNROLL
  for (unsigned n = 0; n < kSlots; ++n) x[n] = slots.has(n) ? logit_of<kInAttention>(a, h, slots.at(n), g) : kNever;
  if (a.kind != ScoreKind::kNoisySum) return;
  float noise[kSlots] = {};
  if (a.noise != ScoreNoise::kNone) {
    KV_UNROLL
    for (unsigned n = 0; n < kSlots; ++n) {
      if (slots.has(n)) noise[n] = noise_on<kInAttention>(a, h, slots.at(n), g);
    }
  }
  KV_UNROLL
  for (unsigned n = 0; n < kSlots; ++n) x[n] = x[n] <= kNever ? kNever : (x[n] + noise[n]) * h.coldness;
}

// The greatest of some x, and the sum of exp(x − greatest).
struct ExpSum {
  float highest, sum;
};

// Of query head g: those of a thread's slots of the split.
template <bool kInAttention>
KV_DEVICE ExpSum noisy_sum_of_thread(const ScoreArguments& a, const ScoreHead& h, const KvSplit& split, unsigned g) {
  ExpSum met = {kNever, 0.0F};
  for_slots(split, [&](const SlotRow& slots) {
    float x[kSlotsAtOnce];
    load_logits<kInAttention>(a, h, slots, g, x);
    float highest = met.highest;
    for (const float logit : x) highest = higher_of(highest, logit);
    if (highest <= kNever) return;
    met.sum *= exp_of(met.highest - highest);
    for (const float logit : x) met.sum += exp_of(logit - highest);
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
  for (unsigned w = 0; w < kScoreThreads / 32; ++w) all.highest = higher_of(all.highest, warps[w].highest);
  all.sum = 0;
  for (unsigned w = 0; w < kScoreThreads / 32; ++w) all.sum += warps[w].sum * exp_of(warps[w].highest - all.highest);
  return all;
}

// The weights of slots, each reduced over the group; `sums` [group] are what they are relative to.
template <bool kInAttention, unsigned kSlots>
KV_DEVICE void weigh_slots(const ScoreArguments& a, const ScoreHead& h, const SlotRow& slots, const float* sums,
                           float (&weights)[kSlots]) {
  KV_UNROLL
  for (unsigned n = 0; n < kSlots; ++n) weights[n] = 0;
  KV_UNROLL_BY(1)
  for (unsigned g = 0; g < a.group; ++g) {
    float x[kSlots];
    load_logits<kInAttention>(a, h, slots, g, x);
    KV_UNROLL
    for (unsigned n = 0; n < kSlots; ++n) {
      const float weight = exp_of(x[n] - sums[g]);
      weights[n] = a.reduction == ScoreReduction::kMax ? higher_of(weights[n], weight) : weights[n] + weight;
    }
  }
  if (a.reduction != ScoreReduction::kMean) return;
  KV_UNROLL
  for (unsigned n = 0; n < kSlots; ++n) weights[n] *= 1.0F / static_cast<float>(a.group);
}

// What a slot has before the row.
struct SlotState {
  std::uint32_t position = 0;
  std::uint32_t score = 0;  // column 0: of sums a float's bits, or a count
  std::uint32_t ring = 0;   // of counts: the word that holds the row's bit
};

// The ring's word of slot 0 in which the query's row has a bit.
KV_DEVICE std::uint32_t* ring_words(const ScoreArguments& a, const ScoreHead& h) {
  return h.slots.state + std::size_t{1 + h.query % a.history / 32} * h.slots.stride;
}

KV_DEVICE SlotState load_state(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot) {
  const std::uint32_t ring = a.kind == ScoreKind::kCounts ? ring_words(a, h)[slot] : 0;
  return {h.slots.positions[slot], h.slots.state[slot], ring};
}

// Adds a row to the count of a slot, and what leaves the history out of it; a ring of one bit a row remembers.
KV_DEVICE float counted(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, SlotState s, float weight) {
  if (s.position == h.query) {  // new: another token's bits lie there
    for (unsigned c = 0; c < (a.history + 31) / 32; ++c) h.slots.state[std::size_t{1 + c} * h.slots.stride + slot] = 0;
    s.score = s.ring = 0;
  }
  const std::uint32_t bit = h.query % a.history % 32;
  const std::uint32_t hit = (a.counts_low ? weight < h.row.threshold : weight > h.row.threshold) ? 1 : 0;
  const std::uint32_t gone = s.ring >> bit & 1U;
  const std::uint32_t count = s.score + hit - gone;
  h.slots.state[slot] = count;
  ring_words(a, h)[slot] = s.ring ^ (hit ^ gone) << bit;
  return a.counts_low ? -static_cast<float>(count) : static_cast<float>(count);
}

// The slot's score after the row: the lowest goes.
KV_DEVICE float scored(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, const SlotState& s,
                       float weight) {
  if (a.kind == ScoreKind::kCounts) return counted(a, h, slot, s, weight);
  const float score = (s.position == h.query ? 0.0F : float_of(s.score)) + weight;
  h.slots.state[slot] = bits_of(score);
  return score;
}

// A slot's place in the order of leaving. What the window hides from the next query goes before all others.
KV_DEVICE std::uint64_t victim_key(const ScoreArguments& a, const ScoreHead& h, std::uint32_t position, float score) {
  if (a.window > 0 && position + a.window == h.query + 1) return position;
  if (h.row.evicts == 0 || position + h.row.recent > h.query) return kNoKey;
  return std::uint64_t{ordered_bits(score)} << 32 | position;
}

KV_DEVICE void meet_victim(const ScoreArguments& a, const ScoreHead& h, std::uint32_t slot, std::uint32_t position,
                           float score, Victim& best) {
  const std::uint64_t key = victim_key(a, h, position, score);
  if (key < best.key) best = {key, slot};
}

// The slot of the `least` key, which some thread has as its `best`, becomes the victim of the head and of those after
// it that keep the same set, `heads` in all.
KV_DEVICE void store_victim(const ScoreArguments& a, const ScoreHead& h, const Victim& best, std::uint64_t least,
                            std::uint32_t heads) {
  const bool hidden = least >> 32 == 0;
  KV_UNROLL_BY(1)
  for (std::uint32_t head = 0; head < heads; ++head) {
    if (thread_x() == 0) {
      a.evicted[h.unit / a.passes + head] = least == kNoKey || hidden ? kNoToken : static_cast<std::uint32_t>(least);
    }
    if (least != kNoKey && best.key == least) *a.units[h.unit + head * a.passes].slots.next = best.slot;
  }
}

// The scores of a split's slots, of which this thread has met `best`; `sums` as in weigh_slots().
template <bool kInAttention>
KV_DEVICE Victim score_slots(const ScoreArguments& a, const ScoreHead& h, const KvSplit& split, const float* sums) {
  Victim best;
  for_slots(split, [&](const SlotRow& slots) {
    SlotState states[kSlotsAtOnce];
    KV_UNROLL
    for (unsigned n = 0; n < kSlotsAtOnce; ++n) {
      if (slots.has(n)) states[n] = load_state(a, h, slots.at(n));
    }
    float weights[kSlotsAtOnce];
    weigh_slots<kInAttention>(a, h, slots, sums, weights);
    KV_UNROLL
    for (unsigned n = 0; n < kSlotsAtOnce; ++n) {
      if (!slots.has(n)) continue;
      const std::uint32_t slot = slots.at(n);
      meet_victim(a, h, slot, states[n].position, scored(a, h, slot, states[n], weights[n]), best);
    }
  });
  return best;
}

// All scores of a storage head with one unit, and its victim; by the block of kScoreThreads that ended the unit.
KV_DEVICE void score_unit(const ScoreArguments& a, std::uint32_t unit) {
  KV_SHARED(float, sums, kMostGroup);
  KV_SHARED(ExpSum, warps, kScoreThreads / 32);
  KV_SHARED(std::uint64_t, keys, kScoreThreads / 32);
  const ScoreHead h = score_head(a, unit);
  const KvSplit whole = {unit, 0, h.row.length, 0, 1};
  if (a.kind == ScoreKind::kNoisySum) {
    keep_own_noise(a, h, whole);
    KV_UNROLL_BY(1)
    for (unsigned g = 0; g < a.group; ++g) {
      const ExpSum all = join_over_block(noisy_sum_of_thread<true>(a, h, whole, g), warps);
      if (thread_x() == 0) sums[g] = all.highest + logf(all.sum);
    }
  } else if (thread_x() < a.group) {
    sums[thread_x()] = a.log_sums[std::size_t{unit} * a.kernel_group + thread_x()];
  }
  sync_block();
  const Victim best = score_slots<true>(a, h, whole, sums);
  const std::uint64_t least = lowest_over_block(best.key, keys);
  store_victim(a, h, best, least, 1);
}

// Has what scores are made of besides logits brought to the second-level cache: a thread every 32nd slot of the split,
// and its last one. (Not the ring of counts: finding its word would cost registers that rows need.)
KV_DEVICE void prefetch_scores(const ScoreArguments& a, const KvSplit& split) {
  const CacheSlots& slots = a.units[split.unit].slots;
  const std::uint32_t* const positions = slots.positions;
  const std::uint32_t* const state = slots.state;
  const std::size_t stride = slots.stride;
  const unsigned columns = keeps_noise(a) ? 1 + a.group : 1;
  for (unsigned at = thread_x() * 32; at < split.count + 31; at += 32 * threads_x()) {
    const std::uint32_t slot = split.first + (at < split.count ? at : split.count - 1);
    prefetch(reinterpret_cast<const std::byte*>(positions + slot));
    for (unsigned c = 0; c < columns; ++c) prefetch(reinterpret_cast<const std::byte*>(state + c * stride + slot));
  }
}

}  // namespace kvroof::cuda
