// Slopes of ALiBi (Press et al., ICLR 2022): the bias of a logit is slope · (position of the key − that of the query).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/core/dtype.hpp"
#include "sim/core/ids.hpp"

namespace kvroof {

// One for each of `heads` query heads: 2^(−i · bias_max / n), i = 1 … n, for n a power of two. For other numbers, those
// of the next power of two: first every second one, then the rest (MPT); with bias_max 8 that equals BLOOM's rule, all
// slopes of the power below and then every other one of the power above.
std::vector<float> alibi_slopes(std::uint32_t heads, float bias_max = 8.0F);

// The bias of a query head's logits.
struct AlibiBias {
  float slope = 0;  // 0: none
  // Falcon's code takes the slope, each position and their product in bf16, and scales that by this; 0: no rounding.
  float rounded_scale = 0;

  // Relative to the query, whose own token has none.
  [[nodiscard]] float of(TokenPos key, TokenPos query) const {
    if (rounded_scale == 0) return slope * static_cast<float>(static_cast<std::int32_t>(key.value - query.value));
    return rounded_scale * (rounded_product(key) - rounded_product(query));
  }

 private:
  static float rounded(float x) { return bf16_to_float(float_to_bf16(x)); }
  [[nodiscard]] float rounded_product(TokenPos position) const {
    return rounded(rounded(slope) * rounded(static_cast<float>(position.value)));
  }
};

}  // namespace kvroof
