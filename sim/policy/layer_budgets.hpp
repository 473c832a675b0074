// Budgets of the layers: by shares of one's own, and as PyramidKV has them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/policy/policy.hpp"

namespace kvroof {

// layers=uniform|pyramid|funnel|a/b/…|persistence/a/b/…: what the layers get in proportion, from the first to the last.
// A list of any length is stretched over the layers: its first entry is the first layer's share, its last the last
// layer's, those between lie on straight lines. pyramid is 1.95/0.05, PyramidKV's slope with beta = 20; funnel its
// reverse. persistence takes persistence ratios p in (0, 1], which are what lies on the lines, and gives shares of 1/p:
// of k tokens about p · k stay important (Scissorhands, section 4.2), and every layer is to hold as many that do.
// Empty: uniform. These are the shares of the list's entries.
std::vector<double> layer_shares(const PolicySpec& spec);
// The share of each of so many layers. Empty: uniform.
std::vector<double> layer_shares(const PolicySpec& spec, std::uint32_t layers);

// Slots that the layer of this context may hold when `tokens` tokens are there. The budgets of all layers add up to
// layers · budget: each gets one, the others go by largest remainder, and none more than the prompt has tokens (or than
// the budget, if that is more), what is left over going to the other layers. A budget that holds every token is every
// layer's.
std::uint32_t layer_budget(std::span<const double> shares, const PolicyContext& context, std::uint32_t budget,
                           std::uint32_t tokens);

// Sets what the parameter `layers` asks for.
void read_layers(const PolicySpec& spec, PolicyTraits& traits);

inline constexpr ParamInfo kLayersParam = {
    "layers", "uniform | pyramid | funnel | a/b/… | persistence/a/b/…", "uniform",
    "budgets of the layers, k on average: even, falling, rising, by shares, or by persistence ratios, each list from "
    "the first layer to the last"};

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
