// Multiple choice by likelihood: the choice that a model finds most likely, as a whole or for its length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvroof {

struct ChoiceScore {
  double log_likelihood = 0;  // natural, of the whole choice after its context
  std::uint64_t bytes = 0;    // of the choice's text, ≥ 1
};

// The index of the largest log-likelihood, the first among equals (lm-evaluation-harness: acc).
std::size_t likeliest(std::span<const ChoiceScore> choices);
// The same of log-likelihood / bytes (lm-evaluation-harness: acc_bytes, and acc_norm where the text is ASCII).
std::size_t likeliest_for_length(std::span<const ChoiceScore> choices);

}  // namespace kvroof
