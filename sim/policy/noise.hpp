// Where Keyformer's noise comes from: the Gumbel draws of sim/core/gumbel.hpp, or in tests given numbers.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "sim/core/gumbel.hpp"
#include "sim/core/ids.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

// out[i] = the draw for the key with its position set to positions[i].
using NoiseSource = std::function<void(NoiseKey key, std::span<const TokenPos> positions, std::span<float> out)>;

// gumbel_draw of many positions at once, equal to it bit for bit on every instruction set.
void gumbel_draws(NoiseKey key, std::span<const TokenPos> positions, std::span<float> out);

// For the paper's ablation: normal draws of the Gumbel distribution's mean and standard deviation, from the same
// uniform draws; and its mean for every key, which changes no softmax.
void gaussian_draws(NoiseKey key, std::span<const TokenPos> positions, std::span<float> out);
// A draw of the standard normal distribution, from the same uniform one.
double normal_draw(const NoiseKey& key);
void constant_draws(NoiseKey key, std::span<const TokenPos> positions, std::span<float> out);

NoiseSource draws_of(Draw draw);
// Where the noise of one query head of a layer belongs, whatever the position.
NoiseKey noise_key(const PolicyContext& context, std::uint32_t query_head);

// The parameters noise and tau of Keyformer's two policies.
NoiseMode keyformer_noise(const PolicySpec& spec);
Temperature keyformer_temperature(const PolicySpec& spec);

// Keyformer with another source of noise than gumbel_draws.
std::unique_ptr<EvictionPolicy> make_keyformer(const PolicySpec& spec, const PolicyContext& context, NoiseSource noise);
std::unique_ptr<EvictionPolicy> make_keyformer_refcompat(const PolicySpec& spec, const PolicyContext& context,
                                                         NoiseSource noise);

}  // namespace kvroof
