// The functions of vector.hpp one element after the other: what the vector code must equal bit for bit, and what
// runs where there is no vector unit.
#pragma once

#include <cstddef>

#include "sim/attention/attention.hpp"

namespace kvroof::plain {

void scaled_dots(const float* q, const RowsView& keys, float scale, float* out);
void softmax(const float* logits, float* weights, std::size_t count, float& largest, float& sum);
void weighted_sum(const float* weights, const RowsView& values, float* out);

}  // namespace kvroof::plain
