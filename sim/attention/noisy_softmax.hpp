// Keyformer's score function in its parts, for callers that scale what they add up.
#pragma once

#include <array>
#include <span>

#include "sim/attention/attention.hpp"

namespace kvroof {

// out = exponentials of (logits + noise) / tau, up to a factor; returns what makes softmax_with_noise() of them, to the
// bit, when it multiplies each. Noise may be empty (none); sizes equal and ≥ 1, out is other memory.
float exponentials_with_noise(std::span<const float> logits, std::span<const float> noise, float tau,
                              std::span<float> out);

// Noise and temperature of rows that lie side by side.
struct NoisyLogits {
  LogitRows logits;
  std::array<const float*, kInterleavedRows> noise;  // of each row, by token; from last − first on the last one again
  std::array<float, kInterleavedRows> factors;       // 1 / tau, likewise
  float least = 0, most = 0;                         // no draw is outside
};
// As interleaved_exponentials() of (logits + noise) / tau: what softmax_with_noise() makes of any part of a row is the
// same, to the bit, as what weights_of_exponentials() makes of its exponentials here, where this says so of the row.
std::array<RowExponentials, kInterleavedRows> interleaved_exponentials(const NoisyLogits& rows, float* out);

}  // namespace kvroof
