// Scores of a policy by launches of their own, where attention itself cannot keep them (score_slots.cuh), and those of
// a prompt's rows.
#pragma once

#include "kernels/cuda/score_slots.cuh"

namespace kvroof::cuda {

constexpr unsigned kRowThreads = 256;  // of blocks that take a slot a thread
static_assert(kRowSlots == kRowThreads);

// The max and sum of exp((logit + noise) / temperature) over a block's splits, for each query head. Blocks
// of kScoreThreads, blocks_of() of them.
KV_PLAIN_KERNEL KV_RESIDENT(kScoreThreads, 6) void noisy_sums(ScoreArguments a) {
  KV_SHARED(ExpSum, warps, kScoreThreads / 32);
  ItemRange range = range_of_block(a);
  KvSplit split;
  bool there = next_split(a, range, split);
  await_previous();
  for (; there; there = next_split(a, range, split)) {
    if (split.unit % a.passes != 0) continue;
    const ScoreHead h = score_head(a, split.unit);
    keep_own_noise(a, h, split);
    for (unsigned g = 0; g < a.group; ++g) {
      const ExpSum all = join_over_block(noisy_sum_of_thread<false>(a, h, split, g), warps);
      if (thread_x() != 0) continue;
      const std::size_t row = std::size_t{h.unit + pass_of<false>(a, g)} * a.most_splits + split.index;
      a.noisy_max[place_of<false>(a, row, g)] = all.highest;
      a.noisy_sum[place_of<false>(a, row, g)] = all.sum;
    }
  }
}

// The log-sum-exp of the noisy logits of query head g, from its splits; for all lanes of a warp.
KV_DEVICE float noisy_log_sum(const ScoreArguments& a, const ScoreHead& h, unsigned g) {
  const std::uint32_t splits = splits_of(a, a.units[h.unit], h.row.length);
  const std::size_t first = std::size_t{h.unit + pass_of<false>(a, g)} * a.most_splits;
  const unsigned lane = thread_x() % 32;
  float highest = kNever;
  KV_UNROLL_BY(1)
  for (unsigned p = lane; p < splits; p += 32) {
    highest = higher_of(highest, a.noisy_max[place_of<false>(a, first + p, g)]);
  }
  highest = max_over(highest, 32);
  float total = 0;
  KV_UNROLL_BY(1)
  for (unsigned p = lane; p < splits; p += 32) {
    const std::size_t at = place_of<false>(a, first + p, g);
    total += a.noisy_sum[at] * exp_of(a.noisy_max[at] - highest);
  }
  return highest + logf(sum_over(total, 32));
}

// The log-sum that each query head's weights are relative to, into `sums`; for all threads of the block.
KV_DEVICE void load_log_sums(const ScoreArguments& a, const ScoreHead& h, float* sums) {
  sync_block();
  for (unsigned g = thread_x() / 32; g < a.group; g += threads_x() / 32) {
    const std::size_t at = place_of<false>(a, h.unit + pass_of<false>(a, g), g);
    const float sum = a.kind == ScoreKind::kNoisySum ? noisy_log_sum(a, h, g) : a.log_sums[at];
    if (thread_x() % 32 == 0) sums[g] = sum;
  }
  sync_block();
}

// The slot of the lowest key that this thread has met; the block's lowest goes to `victim`.
KV_DEVICE void give_up_lowest(const Victim& best, std::uint64_t* scratch, Victim* victim) {
  const std::uint64_t least = lowest_over_block(best.key, scratch);
  if (least == kNoKey ? thread_x() == 0 : best.key == least) *victim = best;
}

// The splits' victims become that of the head and of those after it, as in store_victim(); by the block that finished
// the last of them.
KV_DEVICE void choose_victim(const ScoreArguments& a, const ScoreHead& h, const Victim* victims, std::uint32_t splits,
                             std::uint32_t heads) {
  if (thread_x() >= 32) return;
  Victim best;
  KV_UNROLL_BY(1)
  for (unsigned p = thread_x(); p < splits; p += 32) {
    const Victim other = victims[p];
    if (other.key < best.key) best = other;
  }
  store_victim(a, h, best, lowest_over_warp(best.key), heads);
}

// Blocks of kScoreThreads, blocks_of() of them.
KV_PLAIN_KERNEL KV_RESIDENT(kScoreThreads, 6) void update_scores(ScoreArguments a) {
  KV_SHARED(float, sums, kMostScoreGroup);
  KV_SHARED(std::uint64_t, keys, kScoreThreads / 32);
  KV_SHARED(unsigned, ticket, 1);
  ItemRange range = range_of_block(a);
  KvSplit split;
  bool there = next_split(a, range, split);  // the host sent what says it before a step's launches
  await_previous();
  for (; there; there = next_split(a, range, split)) {
    if (split.unit % a.passes != 0) continue;
    const ScoreHead h = score_head(a, split.unit);
    load_log_sums(a, h, sums);
    Victim* victims = a.victims + std::size_t{h.unit} * a.most_splits;
    give_up_lowest(score_slots<false>(a, h, split, sums), keys, victims + split.index);
    finish_split(a.finished + h.unit, split.splits, ticket, [&] { choose_victim(a, h, victims, split.splits, 1); });
  }
}

// The weights of a slot, summed over all query heads of the layer in their order; `unit` is the sequence's first.
KV_DEVICE float layer_weight(const ScoreArguments& a, std::uint32_t unit, std::uint32_t slot) {
  float sum = 0;
  KV_UNROLL_BY(8)
  for (unsigned q = 0; q < a.storage_heads * a.group; ++q) {
    const unsigned g = q % a.group;
    const std::uint32_t own = unit + q / a.group * a.passes + pass_of<false>(a, g);
    const float x = a.units[own].slots.logits[place_of<false>(a, slot, g)];
    const float log_sum = a.log_sums[place_of<false>(a, own, g)];
    sum += x <= kNever ? 0.0F : exp_of(x - log_sum);
  }
  return sum;
}

// The scores of rows whose sequence keeps one set for all heads of the layer, which so have equal tokens in equal
// slots. Blocks of kRowThreads, x over splits of kRowSlots, y over sequences.
KV_PLAIN_KERNEL void last_row_scores(ScoreArguments a) {
  KV_SHARED(std::uint64_t, keys, kRowThreads / 32);
  KV_SHARED(unsigned, ticket, 1);
  await_previous();
  const ScoreHead h = score_head(a, block_y() * a.storage_heads * a.passes);
  const std::uint32_t first = block_x() * kRowSlots;
  if (first >= h.row.length) return;
  const std::uint32_t count = h.row.length - first < kRowSlots ? h.row.length - first : kRowSlots;
  Victim* victims = a.victims + std::size_t{block_y()} * a.row_splits;
  Victim best;
  if (thread_x() < count) {
    const std::uint32_t slot = first + thread_x();
    const float score = layer_weight(a, h.unit, slot);
    h.slots.state[slot] = bits_of(score);
    meet_victim(a, h, slot, h.slots.positions[slot], score, best);
  }
  give_up_lowest(best, keys, victims + block_x());
  if (a.queries > 0) return;  // of a prompt
  const std::uint32_t splits = (h.row.length + kRowSlots - 1) / kRowSlots;
  finish_split(a.finished + h.unit, splits, ticket, [&] {
    choose_victim(a, h, victims, splits, a.storage_heads);
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
    if (!seen) continue;
    float weight[1];
    weigh_slots<false>(a, h, SlotRow{slot, slot + 1, 1}, sums, weight);
    scored(a, h, slot, load_state(a, h, slot), weight[0]);
  }
}

}  // namespace kvroof::cuda
