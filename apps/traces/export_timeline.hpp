// A recorded run, and simulated ones beside it, as a timeline.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/device/device.hpp"
#include "sim/replay/replay.hpp"
#include "traces/kernel_reader.hpp"
#include "traces/reader.hpp"
#include "traces/timeline.hpp"

namespace kvroof {

// What a step held and moved at a time of the run.
struct TimelineStep {
  std::string name;  // "prefill", "decode"
  std::uint64_t start_ns = 0, end_ns = 0;
  std::optional<std::uint64_t> resident_bytes;  // KV, after the step; of older traces not known
  std::uint64_t moved_bytes = 0;                // KV read, written and copied by compaction
};

// The engine's steps as they were recorded; those without clock times are left out.
std::vector<TimelineStep> recorded_steps(const TraceReader& trace);

// A simulated run of the same sequences, all at once, on a device: prompts first, then a step for every decoded token.
// It starts at `start_ns`.
std::vector<TimelineStep> simulated_steps(const TraceManifest& manifest, const PointResult& result,
                                          const Device& device, std::uint64_t start_ns);

// Writes one process track of steps with their counters, and of the profiler's records where there are any.
class TimelineExport {
 public:
  // Times are written from `zero_ns` on.
  TimelineExport(Timeline& to, std::uint64_t zero_ns) : to_(to), zero_ns_(zero_ns) {}
  void run(const std::string& name, std::span<const TimelineStep> steps, const KernelReader* kernels);

 private:
  [[nodiscard]] std::uint64_t time(std::uint64_t ns) const { return ns > zero_ns_ ? ns - zero_ns_ : 0; }
  void add_steps(std::span<const TimelineStep> steps);
  void add_kernels(const KernelReader& kernels);
  void add_calls(const KernelReader& kernels);
  void add_ranges(const KernelReader& kernels);
  void add_samples(const KernelReader& kernels);
  struct Tracks;
  struct Owner;
  // The track of a slice; a new one has the title that the function gives.
  template <class Title>
  std::uint64_t track_of(Tracks& tracks, const Owner& owner, std::uint64_t start_ns, std::uint64_t end_ns,
                         const Title& title);
  // ", process 4711" where several processes are in the trace.
  [[nodiscard]] std::string of_process(std::uint32_t process) const;

  Timeline& to_;
  std::uint64_t zero_ns_;
  std::uint32_t process_ = 0;
  std::uint64_t track_ = 0;
  bool several_ = false;  // processes in the trace
};

}  // namespace kvroof
