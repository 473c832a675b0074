// Entry points of the vector code, each dispatched at run time to the best instruction set of this processor.
#pragma once

#include <cstddef>

#include "sim/attention/attention.hpp"

namespace kvroof::vector {

// out[i] = scale · (q · keys.row(i)).
void scaled_dots(const float* q, const RowsView& keys, float scale, float* out);
// weights = e^(logits − max) / Σ; writes the maximum and the sum. count ≥ 1.
void softmax(const float* logits, float* weights, std::size_t count, float& largest, float& sum);
void weighted_sum(const float* weights, const RowsView& values, float* out);

}  // namespace kvroof::vector
