// How many tokens a head holds where that follows from lengths alone, whatever its attention says.
#pragma once

#include <cstdint>

#include "sim/policy/policy.hpp"

namespace kvroof {

// Of a head with this budget, after the last time at or before step `step` (0: the end of the prompt) at which the
// policy evicts: every `traits.interval` steps, or after the prompt alone. The `step % traits.interval` tokens since
// then are beside them, and what a window of the layer (0: none) hides is not left out. Where a policy gives up many
// tokens at once (Scissorhands), what it holds at that point of its saw-tooth, unless the window is no longer than the
// budget: then it gives up none. Where heads have capacities of their own, their mean is about this.
std::uint64_t tokens_after_eviction(const PolicySpec& spec, const PolicyTraits& traits, const Budget& budget,
                                    std::uint32_t prompt, std::uint32_t step, std::uint32_t window = 0);

}  // namespace kvroof
