// ScoreRecipe: what a policy's scores are made of, for an engine that keeps them beside its KV cache.
#pragma once

#include <cstdint>

#include "sim/core/ids.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

// How the rows of the query heads that share a storage head become one.
enum class GroupReduction : std::uint8_t { kSum, kMean, kMax };

enum class NoiseMode : std::uint8_t { kNone, kPerToken, kPerQuery };

// The distribution of the noise: Gumbel's, or for an ablation a normal one of its mean and deviation, or its mean.
enum class Draw : std::uint8_t { kGumbel, kGaussian, kConstant };

// The temperature starts at `begin` in the prompt and reaches `end` with the last requested token.
struct Temperature {
  double begin = 1;
  double end = 2;

  [[nodiscard]] float at(StepId step, std::uint32_t requested) const {
    if (requested == 0) return static_cast<float>(begin);
    return static_cast<float>(begin + step.value * (end - begin) / requested);
  }
  bool operator==(const Temperature&) const = default;
};

// Rows as Keyformer looks at them: softmax((logits + noise) / temperature).
struct NoisyScore {
  NoiseMode noise = NoiseMode::kPerToken;
  Draw draw = Draw::kGumbel;
  Temperature temperature;
  bool operator==(const NoisyScore&) const = default;
};

// An engine that follows the recipe gives up what the policy object would, up to the rounding of its sums.
struct ScoreRecipe {
  enum class Kind : std::uint8_t {
    kPositions,     // no scores: the oldest token after the sinks goes
    kAttentionSum,  // Σ over rows of the softmax weights
    kNoisySum,      // Σ over rows of softmax((logit + noise) / temperature)
    kCounts,        // of the last `history` rows, those whose weight is below (or above) a threshold
    kLastRow,       // the newest row's weights, Σ over all query heads of the layer, which keep one set
  };
  Kind kind = Kind::kPositions;
  bool complete = true;                   // false: only the policy object knows what goes
  std::uint32_t sinks = 0;                // kPositions
  TokensOrShare recent{};                 // newest tokens that stay, of the budget; the others below for scores
  GroupReduction reduction = GroupReduction::kSum;
  NoiseMode noise = NoiseMode::kNone;     // kNoisySum
  Temperature temperature{};
  std::uint32_t history = 0;              // kCounts, ≥ 1
  bool counts_low = true;                 // counts below the threshold, and the largest goes; else the reverse
  bool threshold_is_count = true;         // 1 / slots; else 1 / tokens so far
  TokensOrShare drop{};                   // of the budget, that go at once
};

}  // namespace kvroof
