// TokenScores: what a user's file says each token of a prompt is worth, for methods that live outside the program.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/policy/policy.hpp"

namespace kvroof {

struct TokenScores {
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  // By sequence: [layers, heads, tokens of its prompt]. One alone serves them all.
  std::vector<std::vector<float>> sequences;

  bool operator==(const TokenScores&) const = default;
};

// Those of the context's sequence, of all layers; empty where the specification names no file. Throws Error (usage)
// where the file was not read, or has other layers, heads, sequences or tokens.
std::span<const float> token_scores(const PolicySpec& spec, const PolicyContext& context);

}  // namespace kvroof
