// TokenScores: what each token of a prompt is worth by a user's file, for methods that live outside the program, or by
// the model's own repetition of the prompt.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "sim/policy/policy.hpp"

namespace kvroof {

struct TokenScores {
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  // By number: [layers, heads, tokens of its prompt]. One alone serves them all.
  std::map<std::uint32_t, std::vector<float>> sequences;

  bool operator==(const TokenScores&) const = default;
};

// Those of the context's sequence, of all layers; empty where the specification has none and names no file. Throws
// Error (usage) where the file was not read, or has other layers, heads, sequences or tokens.
std::span<const float> token_scores(const PolicySpec& spec, const PolicyContext& context);

}  // namespace kvroof
