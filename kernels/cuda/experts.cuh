// Mixtures of experts: which experts a token takes, which tokens an expert takes, and the sum of what they say. A pair
// is a token and one of the experts that it takes; pair t · per_token + i is token t's i-th.
#pragma once

#include "kernels/cuda/numbers.cuh"

namespace kvroof::cuda {

constexpr unsigned kRouteThreads = 128;
constexpr float kClosed = -1.0F;  // below every probability
constexpr float kTaken = -2.0F;

// The first of the largest of `count` values, in every lane of the warp.
KV_DEVICE unsigned best_of(const float* values, unsigned count) {
  std::uint64_t best = 0;
  for (unsigned i = thread_x() % 32; i < count; i += 32) {
    const std::uint64_t key = std::uint64_t{ordered_bits(values[i])} << 32 | (0xffffffffU - i);
    best = key > best ? key : best;
  }
  for (unsigned mask = 16; mask > 0; mask /= 2) {
    const std::uint64_t other = from_lane_xor(best, mask);
    best = other > best ? other : best;
  }
  return 0xffffffffU - static_cast<unsigned>(best);
}

// Takes the best value: its index, and its value before. For one warp.
KV_DEVICE unsigned take_best(float* values, unsigned count, float& value) {
  const unsigned best = best_of(values, count);
  value = values[best];
  sync_warp();
  if (thread_x() % 32 == 0) values[best] = kTaken;
  sync_warp();
  return best;
}

// Closes the experts of all groups but those with the best single expert (DeepSeek-V2). For one warp.
KV_DEVICE void close_groups(const RouteArguments& a, float* scores, float* groups) {
  const unsigned lane = thread_x() % 32;
  const unsigned size = a.experts / a.groups;
  for (unsigned g = lane; g < a.groups; g += 32) {
    float best = kClosed;
    for (unsigned i = g * size; i < (g + 1) * size; ++i) best = scores[i] > best ? scores[i] : best;
    groups[g] = best;
  }
  sync_warp();
  float value = 0;
  for (unsigned i = 0; i < a.top_groups; ++i) take_best(groups, a.groups, value);
  for (unsigned i = lane; i < a.experts; i += 32) {
    if (groups[i / size] > kTaken) scores[i] = kClosed;
  }
  sync_warp();
}

// Softmax over a token's router logits, and its best experts. Blocks of kRouteThreads, a warp a token.
KV_PLAIN_KERNEL void choose_experts(RouteArguments a) {
  constexpr unsigned kWarps = kRouteThreads / 32;
  KV_SHARED(float, all_scores, kWarps * kMostExperts);
  KV_SHARED(float, all_groups, kWarps * kMostExperts);
  await_previous();
  const unsigned lane = thread_x() % 32;
  const unsigned token = block_x() * kWarps + thread_x() / 32;
  if (token >= a.tokens) return;
  float* scores = all_scores + thread_x() / 32 * kMostExperts;
  const float* logits = a.logits + std::size_t{token} * a.experts;
  float highest = logits[0];
  for (unsigned i = lane; i < a.experts; i += 32) highest = logits[i] > highest ? logits[i] : highest;
  highest = max_over(highest, 32);
  float total = 0;
  for (unsigned i = lane; i < a.experts; i += 32) {
    scores[i] = exp_of(logits[i] - highest);
    total += scores[i];
  }
  total = sum_over(total, 32);
  for (unsigned i = lane; i < a.experts; i += 32) scores[i] /= total;
  sync_warp();
  if (a.groups > 1) close_groups(a, scores, all_groups + thread_x() / 32 * kMostExperts);
  float sum = 0;
  for (unsigned i = 0; i < a.per_token; ++i) {
    float weight = 0;
    const unsigned expert = take_best(scores, a.experts, weight);
    sum += weight;
    if (lane == 0) a.chosen[token * a.per_token + i] = expert;
    if (lane == 0) a.weights[token * a.per_token + i] = weight;
  }
  if (lane != 0) return;
  const float factor = a.scale / (a.renormalise ? sum : 1.0F);
  for (unsigned i = 0; i < a.per_token; ++i) a.weights[token * a.per_token + i] *= factor;
}

// Pairs in the order of their experts, cut into tiles of one expert each; one block of kGroupThreads, a thread an
// expert.
constexpr unsigned kGroupThreads = 256;
KV_PLAIN_KERNEL void group_pairs(GroupArguments a) {
  KV_SHARED(std::uint32_t, counts, kMostExperts);
  KV_SHARED(std::uint32_t, first_pairs, kMostExperts);
  KV_SHARED(std::uint32_t, first_tiles, kMostExperts);
  await_previous();
  for (unsigned e = thread_x(); e < a.experts; e += kGroupThreads) {
    std::uint32_t count = 0;
    for (unsigned p = 0; p < a.pairs; ++p) count += a.chosen[p] == e ? 1 : 0;
    counts[e] = count;
  }
  sync_block();
  if (thread_x() == 0) {
    std::uint32_t pairs = 0, tiles = 0, passed = 0;
    for (unsigned e = 0; e < a.experts; ++e) {
      first_pairs[e] = pairs;
      first_tiles[e] = tiles;
      pairs += counts[e];
      tiles += (counts[e] + a.most - 1) / a.most;
      passed += counts[e] > 0 ? 1 : 0;
    }
    *a.tile_count = tiles;
    *a.passed = passed;
  }
  sync_block();
  for (unsigned e = thread_x(); e < a.experts; e += kGroupThreads) {
    std::uint32_t at = first_pairs[e];
    for (unsigned p = 0; p < a.pairs; ++p) {
      if (a.chosen[p] == e) a.order[at++] = p;
    }
    for (unsigned t = 0; t * a.most < counts[e]; ++t) {
      const std::uint32_t left = counts[e] - t * a.most;
      a.tiles[first_tiles[e] + t] = {e, first_pairs[e] + t * a.most, left < a.most ? left : a.most};
    }
  }
}

// out[t] (+)= the sum of a token's rows. Blocks of kRouteThreads: x over tokens.
KV_PLAIN_KERNEL void add_pairs(AddPairsArguments a) {
  await_previous();
  const float* rows = a.rows + std::size_t{block_x()} * a.per_token * a.cols;
  float* out = a.out + std::size_t{block_x()} * a.cols;
  for (unsigned c = thread_x(); c < a.cols; c += kRouteThreads) {
    float sum = 0;
    for (unsigned i = 0; i < a.per_token; ++i) sum += rows[std::size_t{i} * a.cols + c];
    out[c] = a.add ? out[c] + sum : sum;
  }
}

}  // namespace kvroof::cuda
