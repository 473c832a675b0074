// Slopes of ALiBi (Press et al., ICLR 2022): the bias of a logit is slope · (position of the key − that of the query).
#pragma once

#include <cstdint>
#include <vector>

namespace kvroof {

// One for each of `heads` query heads: 2^(−i · bias_max / n), i = 1 … n, for n a power of two. For other numbers, those
// of the next power of two: first every second one, then the rest (MPT); with bias_max 8 that equals BLOOM's rule, all
// slopes of the power below and then every other one of the power above.
std::vector<float> alibi_slopes(std::uint32_t heads, float bias_max = 8.0F);

}  // namespace kvroof
