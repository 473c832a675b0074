// Sums in double and in an order that depends on the size alone.
#pragma once

#include <span>

namespace kvroof {

// Σ x, √Σ x² and Σ x·y; sizes equal.
double sum_of(std::span<const float> x);
double norm_of(std::span<const float> x);
double dot_of(std::span<const float> x, std::span<const float> y);

}  // namespace kvroof
