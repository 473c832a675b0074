// --kept: what each policy kept, a JSON line for each set.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/unfinished_file.hpp"
#include "sim/replay/replay.hpp"

namespace kvroof {

// Which steps are written: 0 is after the prompt, i after the i-th decoded token.
struct KeptSteps {
  enum class Kind : std::uint8_t { kLast, kAll, kRange };
  Kind kind = Kind::kLast;
  std::uint32_t first = 0, last = 0;  // of a range, both included

  [[nodiscard]] bool contains(StepId step, StepId last_step) const;
};

// "last", "all", "A..B" or "A"; throws Error (usage) for anything else.
KeptSteps parse_kept_steps(const std::string& text);

// The steps asked for that the trace has; `clipped` says in a sentence what it lacks of a range, else it is empty.
// Throws Error (usage) when it has none of them.
KeptSteps recorded_steps(const KeptSteps& asked, const TraceManifest& manifest, std::string& clipped);

// Writes under a temporary name; the file appears whole with close().
class KeptWriter {
 public:
  // Throws Error when the file cannot be written.
  KeptWriter(std::filesystem::path path, std::vector<PolicySpec> points);
  ~KeptWriter();
  KeptWriter(const KeptWriter&) = delete;
  KeptWriter& operator=(const KeptWriter&) = delete;

  void write(const KeptSet& set);
  // Throws Error (usage) when nothing was written.
  void close();
  [[nodiscard]] std::uint64_t lines() const { return lines_; }

 private:
  [[noreturn]] void fail(int reason) const;

  std::filesystem::path path_, temporary_;
  std::vector<std::string> heads_;  // of each point, the line up to the sequence
  std::FILE* file_ = nullptr;
  std::optional<UnfinishedFile> unfinished_;  // the temporary one
  std::string line_;
  std::uint64_t lines_ = 0;
};

}  // namespace kvroof
