// Mixtures of experts: which experts a token takes, which tokens an expert takes, and the sum of what they say. A pair
// is a token and one of the experts that it takes; pair t · per_token + i is token t's i-th.
#pragma once

#include "kernels/cuda/numbers.cuh"

namespace kvroof::cuda {

constexpr unsigned kRouteThreads = 128;
constexpr float kClosed = -1e30F;  // below every rank
constexpr float kTaken = -2e30F;

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

// Takes the best value; its index. For one warp.
KV_DEVICE unsigned take_best(float* values, unsigned count) {
  const unsigned best = best_of(values, count);
  sync_warp();
  if (thread_x() % 32 == 0) values[best] = kTaken;
  sync_warp();
  return best;
}

// Closes the experts of all groups but those with the best experts (DeepSeek-V2 and V3). For one warp.
KV_DEVICE void close_groups(const RouteArguments& a, float* ranks, float* groups) {
  const unsigned lane = thread_x() % 32;
  const unsigned size = a.experts / a.groups;
  for (unsigned g = lane; g < a.groups; g += 32) {
    float best = kClosed;
    float second = kClosed;
    for (unsigned i = g * size; i < (g + 1) * size; ++i) {
      second = higher_of(second, ranks[i] > best ? best : ranks[i]);
      best = higher_of(best, ranks[i]);
    }
    groups[g] = a.group_best == 2 ? best + second : best;
  }
  sync_warp();
  for (unsigned i = 0; i < a.top_groups; ++i) take_best(groups, a.groups);
  for (unsigned i = lane; i < a.experts; i += 32) {
    if (groups[i / size] > kTaken) ranks[i] = kClosed;
  }
  sync_warp();
}

// What an expert's logit is worth: a sigmoid, a part of the softmax over all, or itself.
struct RouterScore {
  RouteScores kind;
  float highest, total;
  KV_DEVICE float of(float logit) const {
    if (kind == RouteScores::kSparseMixer) return logit;
    return kind == RouteScores::kSigmoid ? 1.0F / (1.0F + exp_of(-logit)) : exp_of(logit - highest) / total;
  }
};

// For one warp.
KV_DEVICE RouterScore router_score(const RouteArguments& a, const float* logits) {
  if (a.scores != RouteScores::kSoftmax) return {a.scores, 0, 1};
  float highest = logits[0];
  for (unsigned i = thread_x() % 32; i < a.experts; i += 32) highest = higher_of(highest, logits[i]);
  highest = max_over(highest, 32);
  float total = 0;
  for (unsigned i = thread_x() % 32; i < a.experts; i += 32) total += exp_of(logits[i] - highest);
  return {a.scores, highest, sum_over(total, 32)};
}

// Of an expert that has been taken: its part of a softmax over itself and what is left and near it. For one warp.
KV_DEVICE float mixed_weight(const RouteArguments& a, const float* ranks, float best) {
  float total = 0;
  for (unsigned i = thread_x() % 32; i < a.experts; i += 32) {
    const bool far = best - ranks[i] > a.margin * higher_of(fabsf(ranks[i]), best);
    if (ranks[i] > kTaken && !far) total += exp_of(ranks[i] - best);
  }
  return 1.0F / (1.0F + sum_over(total, 32));
}

// A token's best experts, by the scores of its router logits. Blocks of kRouteThreads, a warp a token.
KV_PLAIN_KERNEL void choose_experts(RouteArguments a) {
  constexpr unsigned kWarps = kRouteThreads / 32;
  KV_SHARED(float, all_ranks, kWarps * kMostExperts);
  KV_SHARED(float, all_groups, kWarps * kMostExperts);
  await_previous();
  const unsigned lane = thread_x() % 32;
  const unsigned token = block_x() * kWarps + thread_x() / 32;
  if (token >= a.tokens) return;
  float* ranks = all_ranks + thread_x() / 32 * kMostExperts;
  const float* logits = a.logits + std::size_t{token} * a.experts;
  const RouterScore score = router_score(a, logits);
  for (unsigned i = lane; i < a.experts; i += 32) {
    ranks[i] = score.of(logits[i]) + (a.bias != nullptr ? a.bias[i] : 0.0F);
  }
  sync_warp();
  if (a.groups > 1) close_groups(a, ranks, all_groups + thread_x() / 32 * kMostExperts);
  float sum = 0;
  for (unsigned i = 0; i < a.per_token; ++i) {
    const unsigned expert = take_best(ranks, a.experts);
    const bool mixed = a.scores == RouteScores::kSparseMixer;
    const float weight = mixed ? mixed_weight(a, ranks, logits[expert]) : score.of(logits[expert]);
    sum += weight;
    if (lane == 0) a.chosen[token * a.per_token + i] = expert;
    if (lane == 0) a.weights[token * a.per_token + i] = weight;
  }
  if (lane != 0) return;
  const float factor = a.scale / (a.renormalise ? sum : 1.0F);
  for (unsigned i = 0; i < a.per_token; ++i) a.weights[token * a.per_token + i] *= factor;
}

// Pairs in the order of their experts, cut into tiles of one expert each. A block of kGroupThreads an expert: each
// counts the pairs of all experts, so that none waits for another, and puts its own in their order.
constexpr unsigned kGroupThreads = 256;
KV_PLAIN_KERNEL void group_pairs(GroupArguments a) {
  constexpr unsigned kWarps = kGroupThreads / 32;
  KV_SHARED(unsigned, counts, kMostExperts);
  KV_SHARED(unsigned, places, 3);  // pairs and tiles before this expert's, experts that have a pair
  KV_SHARED(unsigned, of_warp, kWarps);
  await_previous();
  const unsigned expert = block_x();
  const unsigned lane = thread_x() % 32;
  for (unsigned e = thread_x(); e < kMostExperts; e += kGroupThreads) counts[e] = 0;
  if (thread_x() < 3) places[thread_x()] = 0;
  sync_block();
  for (unsigned p = thread_x(); p < a.pairs; p += kGroupThreads) add_atomic(counts + a.chosen[p], 1);
  sync_block();
  for (unsigned e = thread_x(); e < a.experts; e += kGroupThreads) {
    if (counts[e] == 0) continue;
    add_atomic(places + 2, 1);
    if (e >= expert) continue;
    add_atomic(places, counts[e]);
    add_atomic(places + 1, (counts[e] + a.most - 1) / a.most);
  }
  sync_block();
  const unsigned count = counts[expert];
  for (unsigned t = thread_x(); t * a.most < count; t += kGroupThreads) {
    const unsigned left = count - t * a.most;
    a.tiles[places[1] + t] = {expert, places[0] + t * a.most, left < a.most ? left : a.most};
  }
  if (expert + 1 == a.experts && thread_x() == 0) {
    *a.tile_count = places[1] + (count + a.most - 1) / a.most;
    *a.passed = places[2];
  }
  unsigned at = places[0];
  for (unsigned first = 0; first < a.pairs; first += kGroupThreads) {
    const unsigned p = first + thread_x();
    const bool own = p < a.pairs && a.chosen[p] == expert;
    const std::uint32_t votes = lanes_where(own);
    if (lane == 0) of_warp[thread_x() / 32] = count_bits(votes);
    sync_block();
    unsigned place = at + count_bits(votes & ((1U << lane) - 1));
    for (unsigned w = 0; w < kWarps; ++w) {
      if (w < thread_x() / 32) place += of_warp[w];
      at += of_warp[w];
    }
    if (own) a.order[place] = p;
    sync_block();
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
