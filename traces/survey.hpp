// One look at a trace's folder that serves opening, inspecting and repairing: what is there, and how much of it is
// intact.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "traces/journal.hpp"
#include "traces/manifest.hpp"
#include "traces/reader.hpp"
#include "traces/segment.hpp"

namespace kvroof {

struct Survey {
  TraceReport report;
  std::optional<Seal> seal;               // readable
  // What the segments are read by: manifest.json where the seal vouches for it, else the copy in segment 0.
  std::optional<TraceManifest> manifest;
  std::optional<TraceManifest> manifest_file;  // manifest.json as it reads
  bool manifest_sealed = false;                // the seal vouches for it
  bool being_written = false;             // no seal yet: another program holds the WriterLock
  bool newer = false;                     // written by a version that this program does not know
  bool kernels_intact = false;            // kernels.sqlite is the one that was sealed
  std::vector<SegmentIndex> segments;     // the unbroken run of intact segments from the start
  std::vector<JournalLine> lines;         // what the journal says of these, or should say
};

// `verify` recomputes every checksum; it is implied for the segments of a trace without a seal, whose journal nothing
// vouches for.
// Throws Error only when `path` is not a folder.
Survey survey_trace(const std::filesystem::path& path, bool verify);

// The same for who only reads: a trace without a seal may have a writer, which is then its first problem.
Survey survey_to_read(const std::filesystem::path& path, bool verify);

// The error that ends a command: the first problem, how many steps are intact, and what to do. `problem` replaces the
// survey's own.
Error damaged_trace(const std::filesystem::path& path, const Survey& survey, const std::string& problem = {});

}  // namespace kvroof
