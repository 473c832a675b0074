// The evictions that lose least attention when the future is known and no token returns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/policy/future_attention.hpp"

namespace kvroof {

inline constexpr std::uint32_t kNeverEvicted = 0xffffffffU;

// For each token of one query head after how many decoded tokens it goes, so that the attention which later queries
// would have paid to evicted tokens is as small as can be. evictions[e] tokens go after e decoded ones, out of the
// prompt and those: any number after the prompt, at most one later; evictions.size() ≤ future.steps(). Exact up to the
// rounding of the sums: an assignment of tokens to evictions, by shortest augmenting paths (Jonker and Volgenant,
// 1987). Of equals the oldest goes.
std::vector<std::uint32_t> best_evictions(const FutureAttention& future, std::uint32_t query_head,
                                          std::uint32_t prompt, std::span<const std::uint32_t> evictions);

}  // namespace kvroof
