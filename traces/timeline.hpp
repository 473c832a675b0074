// Timelines for other tools: processes with tracks of slices and counters, as Perfetto's protobuf or Chrome's JSON.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string_view>

namespace kvroof {

struct TimelineArgument {
  std::string_view name;
  std::uint64_t value = 0;
};

// Tracks are numbered by the caller, from 1, each once and before its first event. Slices of a track may hold one
// another whole, but not in part. Events may come in any order of time. Every function may throw Error.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual void process(std::uint32_t process, std::string_view name) = 0;
  virtual void slice_track(std::uint64_t track, std::uint32_t process, std::string_view name) = 0;
  virtual void counter_track(std::uint64_t track, std::uint32_t process, std::string_view name,
                             std::string_view unit) = 0;
  virtual void slice(std::uint64_t track, std::string_view name, std::uint64_t start_ns, std::uint64_t end_ns,
                     std::span<const TimelineArgument> arguments) = 0;
  virtual void counter(std::uint64_t track, std::uint64_t time_ns, double value) = 0;
  // Ends the file.
  virtual void finish() = 0;
};

// Field numbers: protos/perfetto/trace of github.com/google/perfetto, August 2026.
std::unique_ptr<Timeline> perfetto_timeline(std::ostream& to);
// The Trace Event Format, as Perfetto and chrome://tracing read it: one thread a track, times in microseconds.
std::unique_ptr<Timeline> chrome_timeline(std::ostream& to);

}  // namespace kvroof
