// One segment of a trace: what the recorder buffers for it, how it is written, and where its tensors lie in a file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/byte_counters.hpp"
#include "sim/core/error.hpp"
#include "sim/core/files.hpp"
#include "traces/journal.hpp"
#include "traces/manifest.hpp"
#include "traces/safetensors.hpp"
#include "traces/writer.hpp"

namespace kvroof {

inline constexpr std::size_t kStepColumns = 3 + kCauses;  // step, phase, sequences, bytes by cause
inline constexpr std::size_t kEvictionColumns = 3;        // step, head, position

// Bytes of one row of q, k and v of a layer.
struct RowBytes {
  std::uint64_t q = 0, k = 0, v = 0;
};
RowBytes row_bytes(const TraceLayer& layer, DType type);

// --- What is written ---

struct LayerBuffer {
  std::vector<std::byte> q, k, v;
  std::vector<std::int32_t> evictions;  // kEvictionColumns each
};

struct SequenceBuffer {
  std::uint32_t first_row = 0;
  std::uint32_t first_id = 0;
  std::vector<std::int64_t> ids;
  std::vector<float> logprobs;
  std::vector<LayerBuffer> layers;
};

struct SegmentBuffer {
  std::uint32_t segment = 0;
  std::uint32_t first_step = 0;
  std::vector<std::int64_t> steps;        // kStepColumns each
  std::vector<std::int64_t> experts;      // of each step
  std::vector<std::int64_t> resident;     // bytes that the cache held after each step, as far as they are known
  std::vector<SequenceBuffer> sequences;  // as in the manifest
};

// Writes the segment's file into the trace's folder; `manifest` goes into segment 0. When it returns the file is whole
// whatever becomes of this process, but not yet on the disk. Throws Error.
JournalLine write_segment(const std::filesystem::path& trace, const SegmentBuffer& buffer,
                          const TraceManifest& manifest);

// --- What is read ---

// Where a layer's tensors of one sequence start in the file (bytes), and how many evictions there are.
struct LayerIndex {
  std::uint64_t q = 0, k = 0, v = 0;
  std::uint64_t evictions = 0;
  std::uint32_t eviction_count = 0;
};

struct SequenceIndex {
  std::uint32_t sequence = 0;  // index into the manifest's sequences
  std::uint32_t first_row = 0, rows = 0;
  std::uint32_t first_id = 0, id_count = 0;
  std::uint64_t ids = 0, logprobs = 0;  // bytes from the start of the file
  std::vector<LayerIndex> layers;       // empty: neither rows nor evictions here
};

struct SegmentIndex {
  std::uint32_t segment = 0;
  std::uint32_t first_step = 0, step_count = 0;
  std::uint64_t steps = 0;
  std::optional<std::uint64_t> experts, resident;
  std::vector<SequenceIndex> sequences;  // those that occur here
  std::optional<std::uint64_t> own_checksum;  // where the tensor `checksum` starts
};

// Checks names, types and shapes against the manifest; refuses tensors that the format does not know.
Result<SegmentIndex> index_segment(const SafetensorsHeader& header, const TraceManifest& manifest);

// Holds that each segment continues where the one before stopped.
class SegmentChain {
 public:
  explicit SegmentChain(const TraceManifest& manifest)
      : rows_(manifest.sequences.size()), ids_(manifest.sequences.size()) {}
  // Takes the next segment, or says why it is not the next one.
  std::optional<Failure> append(const SegmentIndex& segment);
  [[nodiscard]] std::uint32_t segments() const { return segments_; }
  [[nodiscard]] std::uint32_t steps() const { return steps_; }
  [[nodiscard]] std::uint32_t rows(std::size_t sequence) const { return rows_[sequence]; }

 private:
  std::uint32_t segments_ = 0;
  std::uint32_t steps_ = 0;
  std::vector<std::uint32_t> rows_;
  std::vector<std::uint32_t> ids_;
};

// Checksums of a segment's file, from one pass over it.
struct SegmentChecksums {
  std::uint64_t file = 0;   // what the journal holds
  bool own_right = false;   // the tensor `checksum` is there and agrees
};
Result<SegmentChecksums> segment_checksums(const OpenFile& file, std::optional<std::uint64_t> own_checksum);

// Columns of one engine step as a record without clock times; refuses numbers out of range.
Result<StepRecord> step_from_row(std::span<const std::int64_t> row);

}  // namespace kvroof
