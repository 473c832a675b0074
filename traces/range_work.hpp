// Device work beside the application's ranges (NVTX), by the thread that launched it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "traces/kernel_reader.hpp"

namespace kvroof {

// A range of a thread; marks are none.
struct ThreadRange {
  std::uint64_t thread = 0;  // of all processes
  std::uint64_t start_ns = 0, end_ns = 0;
  std::string_view text;  // lives as long as the call that hands it over
};

// A kernel, copy or fill, and the call that launched it.
struct LaunchedWork {
  WorkKind kind = WorkKind::kKernel;
  std::uint64_t start_ns = 0, end_ns = 0;  // 0, 0: not measured
  std::optional<std::uint64_t> thread;     // of the call; nothing: the call was not recorded
  std::uint64_t launched_ns = 0;           // when the call began
};

// Hands over both, thread by thread, in the order of their starts and launches; of what starts together, ranges first
// and the longest of them first. Work whose call is not known comes before all. Memory stays flat. Throws Error
// (damaged trace).
void for_each_range_and_work(const std::filesystem::path& trace, const std::function<void(const ThreadRange&)>& range,
                             const std::function<void(const LaunchedWork&)>& work);

}  // namespace kvroof
