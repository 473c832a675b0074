// Which of several servers a request goes to.
#pragma once

#include <cstddef>
#include <span>

#include "sim/serving/replica.hpp"

namespace kvroof {

// The one that has fewest requests, of several the first. `by_prefix`: the one whose prefix cache has most of the
// prompt, where that is more than 0.3 of it; unless some server has over 64 requests more than another and over 1.5
// times as many: SGLang's cache-aware router at its defaults.
std::size_t chosen_replica(std::span<const Replica> replicas, const Request& request, bool by_prefix);

}  // namespace kvroof
