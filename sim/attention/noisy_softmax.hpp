// Keyformer's score function in its parts, for callers that scale what they add up.
#pragma once

#include <span>

namespace kvroof {

// out = exponentials of (logits + noise) / tau, up to a factor; returns what makes softmax_with_noise() of them, to the
// bit, when it multiplies each. Noise may be empty (none); sizes equal and ≥ 1, out is other memory.
float exponentials_with_noise(std::span<const float> logits, std::span<const float> noise, float tau,
                              std::span<float> out);

}  // namespace kvroof
