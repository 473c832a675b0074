// The small records around the segments of a trace: lines of the journal, and the seal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace kvroof {

inline constexpr std::string_view kManifestFile = "manifest.json";
inline constexpr std::string_view kJournalFile = "journal.jsonl";
inline constexpr std::string_view kKernelsFile = "kernels.sqlite";
inline constexpr std::string_view kSealFile = "seal.json";
inline constexpr std::string_view kLockFile = "writer.lock";  // while the trace is written
inline constexpr std::string_view kSegmentsFolder = "segments";
inline constexpr std::string_view kLostFolder = "lost";
inline constexpr std::uint64_t kMaxTextFile = std::uint64_t{64} << 20;  // manifest, journal, seal

// "segments/00007.safetensors"
std::string segment_file(std::uint32_t segment);

// A sealed segment.
struct JournalLine {
  std::uint32_t segment = 0;
  std::uint32_t first_step = 0;
  std::uint32_t steps = 0;
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;  // of the whole file
};

// With its newline.
std::string journal_line_to_json(const JournalLine& line);

// The lines before the first that is damaged, and what is wrong with that one (empty: nothing).
struct Journal {
  std::vector<JournalLine> lines;
  std::string problem;
};
Journal parse_journal(std::string_view text);

struct Seal {
  std::uint32_t segments = 0;
  std::uint32_t steps = 0;
  std::uint64_t bytes = 0;  // of all segments
  std::uint64_t manifest_xxh3 = 0;
  std::uint64_t journal_xxh3 = 0;
  std::uint64_t kernels_bytes = 0;
  std::uint64_t kernels_xxh3 = 0;
};
std::string seal_to_json(const Seal& seal);
Result<Seal> seal_from_json(std::string_view text);
// Fills in the checksums of the other files of the trace, and writes seal.json. Throws Error.
void write_seal(const std::filesystem::path& trace, Seal seal);

}  // namespace kvroof
