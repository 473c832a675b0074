// The spools that recorded processes leave in a folder, as records of one trace.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include "traces/kernel_records.hpp"

namespace kvroof {

struct MergedSpools {
  std::size_t processes = 0;  // that started CUDA
  std::size_t readable = 0;   // of them, whose file is a spool
  std::size_t recorded = 0;   // of them, that had a recorder
  std::uint64_t records = 0, kernels = 0;
  std::uint64_t dropped = 0;
  std::size_t ended_early = 0;    // processes
  std::size_t still_running = 0;  // processes: what they did later is not here
  std::string why;              // of the first process without one
};

// Hands the records of every spool in the folder to the sink, process by process, and notes about each and all of them.
// Throws Error (ended_by) once `stop` is the number of a signal.
MergedSpools merge_spools(const std::filesystem::path& folder, ProfileSink& to, const std::atomic<int>& stop);

// One line about them.
std::string merged_text(const std::filesystem::path& out, const MergedSpools& merged);

}  // namespace kvroof
