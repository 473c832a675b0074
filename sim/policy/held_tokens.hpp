// How many tokens a head holds where that follows from lengths alone, whatever its attention says.
#pragma once

#include <cstdint>

#include "sim/policy/policy.hpp"

namespace kvroof {

// Of a head with this budget, after the last time at or before step `step` (0: the end of the prompt) at which the
// policy evicts: every `traits.interval` steps, or after the prompt alone. The `step % traits.interval` tokens since
// then are beside them. Where a policy gives up many tokens at once (Scissorhands), what it holds at that point of its
// saw-tooth; where heads have capacities of their own, their mean is about this.
std::uint64_t tokens_after_eviction(const PolicySpec& spec, const PolicyTraits& traits, const Budget& budget,
                                    std::uint32_t prompt, std::uint32_t step);

}  // namespace kvroof
