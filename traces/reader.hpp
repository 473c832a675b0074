// Reads a sealed trace, one layer of one sequence at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/core/dtype.hpp"
#include "sim/core/ids.hpp"
#include "traces/manifest.hpp"
#include "traces/writer.hpp"

namespace kvroof {

// k and v of one layer of one sequence, in the trace's kv_type, token-major.
struct LayerKeysValues {
  std::uint32_t tokens = 0;
  std::vector<std::byte> k;  // [tokens, kv_heads, k_width]
  std::vector<std::byte> v;  // [tokens, kv_heads, v_width]
};

class TraceReader {
 public:
  // Opens a complete trace: seal present, checksums of manifest, journal and kernels.sqlite right, every segment there
  // with the size the journal says. Throws Error with exit code 4 (kDamagedTrace) otherwise; the message says how many
  // steps are intact. Exit code 1 when `path` is not a folder at all.
  static TraceReader open(const std::filesystem::path& path);

  // The same for a trace that must hold attention; one that holds none is a mistake of the user.
  static TraceReader open_attention(const std::filesystem::path& path);

  [[nodiscard]] const TraceManifest& manifest() const;
  [[nodiscard]] const std::filesystem::path& path() const;

  // k and v of all tokens of the sequence in this layer. Each segment's checksum is verified the first time it is read.
  [[nodiscard]] LayerKeysValues keys_values(std::uint32_t sequence, LayerId layer) const;

  // Calls visit(first position, rows, q bytes [rows, query_heads, k_width]) for ascending blocks of rows: queries need
  // not be held in memory all at once.
  void for_each_query_block(
      std::uint32_t sequence, LayerId layer,
      const std::function<void(std::uint32_t, std::uint32_t, std::span<const std::byte>)>& visit) const;

  [[nodiscard]] std::vector<std::int64_t> token_ids(std::uint32_t sequence) const;
  [[nodiscard]] std::vector<float> logprobs(std::uint32_t sequence) const;
  // Evictions of one sequence and layer in the order they happened; empty for a full-attention run.
  [[nodiscard]] std::vector<EvictionRecord> evictions(std::uint32_t sequence, LayerId layer) const;
  // Engine steps with the bytes that the engine counted.
  [[nodiscard]] std::vector<StepRecord> steps() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// What `inspect` prints.
struct TraceReport {
  bool sealed = false;
  bool intact = false;             // every checksum that was looked at is right
  std::uint32_t segments = 0;      // in the journal (or found, when there is no journal)
  std::uint32_t intact_segments = 0;
  std::uint32_t intact_steps = 0;  // engine steps in the unbroken run of intact segments from the start
  std::vector<std::string> problems;  // one sentence each
  std::uint64_t bytes = 0;
  [[nodiscard]] std::string intact_text() const;  // "1 step is intact", "12 steps are intact"
};

// Looks at a trace without throwing for damage; `verify` recomputes every checksum.
TraceReport inspect_trace(const std::filesystem::path& path, bool verify);
// Rebuilds journal, manifest and seal from the segments that are intact from the start on; damaged and later segments
// are moved into lost/ rather than deleted. Returns the report of the repaired trace, whose problems are databases that
// were damaged. Throws Error when nothing can be saved, while the trace is still written, and when it cannot be written
// now: then nothing is lost, and a later repair keeps as much.
TraceReport repair_trace(const std::filesystem::path& path);

}  // namespace kvroof
