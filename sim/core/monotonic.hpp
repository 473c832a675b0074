// The clock of a trace's records: that of the engine's steps, of kernels that are recorded with them, of measurements.
#pragma once

#include <chrono>
#include <cstdint>

namespace kvroof {

// Nanoseconds of CLOCK_MONOTONIC, which is std::chrono's steady clock.
inline std::uint64_t monotonic_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace kvroof
