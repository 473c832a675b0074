// Imports of profiles: what other programs' profilers saw becomes a trace without attention.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "sim/core/error.hpp"
#include "traces/kernel_records.hpp"

namespace kvroof {

// Records that no trace can hold: a profiler that was stopped, or an export that was cut, leaves some.
struct LeftOutRecords {
  std::uint64_t before = 0;     // began before the recording, whose clock has no place for them
  std::uint64_t backwards = 0;  // end before they start
  std::uint64_t timeless = 0;   // have no start that is a time
  std::uint64_t nameless = 0;   // kernels without a name
  [[nodiscard]] std::uint64_t total() const { return before + backwards + timeless + nameless; }
  // How many and why, as a clause: "2 records that end before they start, 1 kernel without a name".
  [[nodiscard]] std::string text() const;
};

struct ProfileCounts {
  std::uint64_t kernels = 0, copies = 0, fills = 0, calls = 0, ranges = 0;
  std::uint64_t others = 0;        // records of kinds that are not taken
  std::uint64_t of_operators = 0;  // of the kernels: those of an operator with shapes, which say what they must move
  std::uint64_t whole_graphs = 0;  // of the kernels: launches of graphs whose kernels are not in the file
  LeftOutRecords left_out;
};

// `nsys export --type sqlite`: tables and columns that are absent are done without, but for the kernels' times.
Result<ProfileCounts> read_nsys(const std::filesystem::path& file, ProfileSink& to);

// The JSON that PyTorch's profiler (Kineto) exports, compressed by gzip or not; read event by event, so that memory
// stays flat.
Result<ProfileCounts> read_kineto(const std::filesystem::path& file, ProfileSink& to);

using ReadProfile = Result<ProfileCounts> (*)(const std::filesystem::path& file, ProfileSink& to);

// Writes the trace `out` of what `write` hands to its sink, or nothing: what it throws goes on.
void write_profile(const std::filesystem::path& out, std::string_view tool_version, const std::string& command_line,
                   const std::function<void(ProfileSink&)>& write);

// Writes the trace `out`, or nothing. `kind` (nsys, kineto) is noted in it. Throws Error, also for a refused file.
ProfileCounts import_profile(const std::filesystem::path& file, std::string_view kind, ReadProfile read,
                             const std::filesystem::path& out, const std::string& tool_version,
                             const std::string& command_line);

}  // namespace kvroof
