// Chooses the next token from logits: greedy, or sampled with temperature, top-k and top-p.
#pragma once

#include <cstdint>
#include <span>

namespace kvroof {

struct Sampling {
  double temperature = 0;   // 0: greedy
  std::uint32_t top_k = 0;  // only the k most likely tokens; 0: all
  double top_p = 1;         // only the most likely tokens that together reach this probability; 1: all
  std::uint64_t seed = 0;
};

// Greedy takes the largest logit, the lowest id among equals. Sampling sorts by logit (then id), cuts to top_k, then to
// the shortest prefix whose probability reaches top_p, and draws from what is left. The draw is Philox4x32-10 keyed by
// seed, sequence and step (the index of the new token), so it depends neither on the batch nor on threads. Logits with
// a NaN or +∞ are no distribution: then as greedy, and log_probability() has no finite number for it.
std::int64_t sample(std::span<const float> logits, const Sampling& sampling, std::uint32_t sequence,
                    std::uint32_t step);

// Natural logarithm of the softmax probability of `token`.
float log_probability(std::span<const float> logits, std::int64_t token);

}  // namespace kvroof
