// What a back end says of the kernels that it launches, so that a profiler's records can be given their meaning.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "sim/core/byte_counters.hpp"

namespace kvroof {

// What a launch must move and compute.
struct DeclaredWork {
  ByteCounters bytes;
  std::uint64_t flops = 0;  // 0: not known
};

inline DeclaredWork moved(Cause cause, std::uint64_t bytes) {
  DeclaredWork work;
  work.bytes.add(cause, bytes);
  return work;
}

struct LaunchMeaning {
  std::string_view operation;           // qkv, attention, …; a literal
  std::int32_t layer = -1;              // -1: outside the layers
  Cause cause = Cause::kActivations;    // of a launch that declares no bytes
  DeclaredWork declared;
  std::int32_t sequence = -1;           // -1: of all sequences of the step
};

// Called by the thread that launches.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // What is launched until end_launch() means this: one kernel, or the few that a library makes of it.
  virtual void begin_launch(const LaunchMeaning& meaning) = 0;
  virtual void end_launch() = 0;
  // Launches until end_capture(), each between begin_launch and end_launch, are noted and not made (a CUDA graph).
  virtual void begin_capture() = 0;
  virtual void end_capture() = 0;
  // All launches of the last capture are made by the one call until end_launch(); a meaning for each, in the order in
  // which they were noted.
  virtual void begin_graph_launch(std::span<const LaunchMeaning> meanings) = 0;
  // Whether it wants every launch by itself: then there are no graphs, and none begins before the one before has ended.
  [[nodiscard]] virtual bool one_by_one() const { return false; }
};

}  // namespace kvroof
