// Rotary position embedding (Su et al. 2021) as data: which dimensions turn, and how fast each pair turns.
#pragma once

#include <cstdint>
#include <vector>

namespace kvroof {

// Which elements of the rotated part form pair i of `dims / 2`: (i, i + dims/2) or (2i, 2i + 1).
enum class RotaryStyle : std::uint8_t { kHalfSplit, kAdjacentPairs };

// Pair i at position p turns by p · inverse_frequencies[i], in float; cosine and sine are multiplied by `magnitude`.
struct RotaryRule {
  RotaryStyle style = RotaryStyle::kHalfSplit;
  std::uint32_t dims = 0;   // rotated elements, even
  double theta = 10000.0;   // base, before scaling
  std::vector<float> inverse_frequencies;  // [dims / 2], scaling applied
  float magnitude = 1;      // attention factor of YaRN and longrope
  // Phi-3's longrope: sequences whose prompt is longer than this take the second table.
  std::uint32_t long_from = 0;  // tokens; 0: there is no second table
  std::vector<float> long_inverse_frequencies;

  bool operator==(const RotaryRule&) const = default;
};

// theta^(-2i/dims) for each pair, rounded to float where the published models round.
std::vector<float> plain_inverse_frequencies(double theta, std::uint32_t dims);

// An unscaled rule over the first `dims` elements.
RotaryRule plain_rotary(RotaryStyle style, std::uint32_t dims, double theta);

}  // namespace kvroof
