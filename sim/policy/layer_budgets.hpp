// PyramidKV's budgets of the layers: more tokens in the first layers, fewer in the last, about as many in all.
#pragma once

#include <cstdint>

#include "sim/policy/policy.hpp"

namespace kvroof {

struct PyramidRule {
  std::uint32_t window = 32;
  std::uint32_t beta = 20;  // how steep: the last layer gets a beta-th of the mean without the window
};

// Tokens beside the window that the layer of this context keeps of a prompt, `mean` a layer, as KVCache-Factory and
// AdaKV compute it: whole numbers throughout, so that the sum over the layers may exceed layers · mean a little.
std::uint32_t pyramid_without_window(const PyramidRule& rule, const PolicyContext& context, std::uint32_t mean);

// KVCache-Factory's PyramidKVCluster: tokens that the layer keeps, window included. A prompt shorter than
// 2 (budget − window) has the same budget in every layer.
std::uint32_t pyramid_budget(const PyramidRule& rule, const PolicyContext& context, std::uint32_t budget);

// kvpress's PyramidKVPress: tokens that the layer keeps, window included, of `kept` a layer, which may be a fraction.
std::uint32_t pyramid_budget_kvpress(const PyramidRule& rule, const PolicyContext& context, double kept);

}  // namespace kvroof
