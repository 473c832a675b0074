// Moments of one run of a workload as moments of another run of it: by step, and by their share of the step's time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kvroof {

// Start and end of each step in nanoseconds, ascending.
using StepTimes = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

// Nothing: the moment lies in no step of `from`, or `to` has no such step.
std::optional<std::uint64_t> same_moment(const StepTimes& from, const StepTimes& to, std::uint64_t time_ns);

}  // namespace kvroof
