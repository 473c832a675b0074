// Writes a trace while the run goes on: segments of steps that appear whole, a journal, and a seal at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "sim/core/byte_counters.hpp"
#include "sim/core/ids.hpp"
#include "traces/manifest.hpp"

namespace kvroof {

class ProfileSink;

// One eviction: the storage head `head` of `layer` gave up `position` at the end of `step`.
struct EvictionRecord {
  std::uint32_t sequence = 0;
  std::uint32_t step = 0;
  std::uint32_t layer = 0;
  std::uint32_t head = 0;
  std::uint32_t position = 0;
  friend auto operator<=>(const EvictionRecord&, const EvictionRecord&) = default;
};

// What one engine step did; goes into kernels.sqlite (table kvroof_step), beside the deterministic segments.
struct StepRecord {
  std::uint32_t step = 0;       // engine step: 0.. in the order of execution
  std::string phase;            // prefill | decode
  std::uint32_t sequences = 0;  // in the batch
  std::uint64_t start_ns = 0;   // monotonic clock
  std::uint64_t end_ns = 0;
  ByteCounters bytes;           // counted by the engine
  std::uint64_t experts = 0;    // routed experts that passed tokens, summed over layers; 0 in a dense model
  // Bytes that the KV cache holds after the step, sequences that ended with it included; absent where nobody said so.
  std::optional<std::uint64_t> kv_resident_bytes = std::nullopt;
};

// Of a token of a prompt whose logits were not asked for.
inline constexpr float kUnknownLogprob = std::numeric_limits<float>::quiet_NaN();

class TraceWriter {
 public:
  // Creates the folder `path`, which must not exist or be empty. Throws Error when it cannot be written. Holds the
  // WriterLock of the trace until it is sealed or abandoned.
  // Rows are buffered up to `segment_bytes`, then sealed as a segment.
  TraceWriter(std::filesystem::path path, TraceManifest manifest, std::uint64_t segment_bytes = 8U << 20);
  // Abandons an unsealed trace as a killed recorder would leave it.
  ~TraceWriter();

  // Rows [first, first + count) of one layer of one sequence, as attention consumed them, in manifest.kv_type:
  // q [count, query_heads, k_width], k [count, kv_heads, k_width], v [count, kv_heads, v_width]. Positions of one
  // (sequence, layer) arrive in order without gaps.
  void add_rows(std::uint32_t sequence, LayerId layer, std::uint32_t first, std::uint32_t count,
                std::span<const std::byte> q, std::span<const std::byte> k, std::span<const std::byte> v);
  // Ids of tokens [first, …) and the natural log-probability that the model gave each: 0 for the first of a sequence,
  // kUnknownLogprob where it was not computed.
  void add_tokens(std::uint32_t sequence, std::uint32_t first, std::span<const std::int64_t> ids,
                  std::span<const float> logprobs);
  void add_eviction(const EvictionRecord& eviction);
  // Ends an engine step. A segment is closed only here, so that it holds whole steps of all layers.
  void end_step(const StepRecord& step);
  // Takes back what came after the last end_step: a step that was cut.
  void forget_step();
  void set_stop_reason(std::uint32_t sequence, std::string reason);
  // Where a profiler's records go: into kernels.sqlite, which seal() completes. To be called before anything runs that
  // it watches; then one thread at a time may add records, another one than the engine's as well, until seal().
  ProfileSink& profile();
  // Of the final manifest.
  void set_linear(std::string by);
  // Writes the open segment, the final manifest, kernels.sqlite and the seal. Nothing may be added afterwards.
  void seal();
  // Not after the seal, nor when writing has failed: then the trace stays as a killed recorder would leave it.
  [[nodiscard]] bool can_seal() const;

  [[nodiscard]] std::uint64_t bytes_written() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Writes the trace `out` with what `write` adds, and seals it; or nothing: what it throws goes on, and a folder that
// was there is as empty as before.
void write_whole_trace(const std::filesystem::path& out, TraceManifest manifest,
                       const std::function<void(TraceWriter&)>& write);

}  // namespace kvroof
