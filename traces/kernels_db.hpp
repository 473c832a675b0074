// kernels.sqlite of a trace: engine steps with clock times, and the tables that kernel recorders fill.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "traces/writer.hpp"

namespace kvroof {

// Writes the whole file under a temporary name, fsyncs and renames it. A step whose two times are 0 has none (NULL).
// Throws Error.
void write_kernels_db(const std::filesystem::path& path, std::span<const StepRecord> steps);

// Start and end of each step in nanoseconds, in the order of steps; 0, 0 where unknown.
Result<std::vector<std::pair<std::uint64_t, std::uint64_t>>> read_step_times(const std::filesystem::path& path);

}  // namespace kvroof
