// Backend: runs the model for a session; the KV cache, the policies and the recorder's hooks live behind it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "kernels/engine/launch_observer.hpp"
#include "sim/core/byte_counters.hpp"
#include "sim/core/ids.hpp"
#include "traces/writer.hpp"

namespace kvroof {

// What a back end tells while it runs; the session's recorder turns it into a trace. Calls come from one thread.
class Recorder {
 public:
  virtual ~Recorder() = default;
  // q [count, query_heads, k_width], k [count, kv_heads, k_width], v [count, kv_heads, v_width] as attention consumed
  // them, in the cache's type, of positions [first, first + count).
  virtual void rows(std::uint32_t sequence, LayerId layer, std::uint32_t first, std::uint32_t count,
                    std::span<const std::byte> q, std::span<const std::byte> k, std::span<const std::byte> v) = 0;
  virtual void eviction(const EvictionRecord& eviction) = 0;
  // Routed experts that passed tokens in this call of the back end, summed over layers; said at its end where there are
  // any.
  virtual void experts(std::uint64_t passed) { static_cast<void>(passed); }
};

struct KvUsage {
  std::uint64_t resident_bytes = 0;       // rows held
  std::uint64_t peak_resident_bytes = 0;  // largest so far; the layer whose prompt is computed holds all of it
  std::uint64_t allocated_bytes = 0;      // memory that caches and prompt buffer own
  std::uint64_t peak_bytes = 0;           // largest allocated_bytes so far
  std::uint64_t state_bytes = 0;          // memory of layers that hold a state in place of a cache, beside these

  // What others hold beside this; of the largest so far nothing is known.
  KvUsage& operator+=(const KvUsage& others) {
    resident_bytes += others.resident_bytes;
    allocated_bytes += others.allocated_bytes;
    state_bytes += others.state_bytes;
    return *this;
  }
};

// Which kernels make products of weights with many vectors.
struct LinearFacts {
  std::string by;       // own, cublaslt 13.1.0 once it has made any; empty: the back end has no choice
  std::string problem;  // why it was not the faster way, where there was one; empty: it was
};

struct DecodeEntry {
  std::uint32_t sequence = 0;
  std::int64_t token = 0;
};

// What greedy decoding takes of a row of logits: the largest, of equals the first.
struct TokenChoice {
  std::int64_t token = 0;
  float logprob = 0;  // natural logarithm of its probability; no finite number where the row has a NaN or an infinity
};

// Takes logits [rows, vocab] of consecutive tokens of a prompt; they are gone after the call.
using LogitsSink = std::function<void(std::span<const float> logits)>;

// Thrown by a prefill that was told to stop.
struct Interrupted {};

class Backend {
 public:
  virtual ~Backend() = default;
  // Runs the whole prompt of a new sequence; `last` [vocab] receives the logits of its last token, unless it is empty.
  // `all`, unless empty, is handed those of every token, first to last, in blocks of as many as the back end likes:
  // those of a long prompt would fill more memory than its KV cache.
  // Throws Interrupted between two layers when the flag of set_interrupt is set. After that, as after an Error, the
  // back end knows nothing of the sequence, and the recorder has got rows of some layers.
  virtual void prefill(std::uint32_t sequence, std::span<const std::int64_t> ids, std::uint32_t requested_new_tokens,
                       std::span<float> last, const LogitsSink& all) = 0;
  // One step of a batch: each entry's token is appended to its sequence; logits [entries, vocab]. After an Error the
  // sequences of the batch can only be released; after one in prefill() the others go on.
  virtual void decode(std::span<const DecodeEntry> batch, std::span<float> logits) = 0;
  // As decode(), where of each row only this is wanted: choices [entries]. False, and nothing is done, where the back
  // end gives logits alone.
  virtual bool decode_greedily(std::span<const DecodeEntry> /*batch*/, std::span<TokenChoice> /*choices*/) {
    return false;
  }
  // Frees a finished sequence.
  virtual void release(std::uint32_t sequence) = 0;
  [[nodiscard]] virtual KvUsage kv_usage() const = 0;
  // Bytes by cause since the last call.
  virtual ByteCounters take_counters() = 0;
  virtual void set_recorder(Recorder* recorder) = 0;  // may be null; not owned
  // Told of every launch from now on; may be null; not owned. A back end without a device launches nothing.
  virtual void set_observer(LaunchObserver* /*observer*/) {}
  // What is known by now: a library may refuse later.
  [[nodiscard]] virtual LinearFacts linear_facts() const { return {}; }
  // A flag to look at during a prefill; may be null; not owned. A back end need not look.
  virtual void set_interrupt(const std::atomic<bool>* /*asked*/) {}
};

}  // namespace kvroof
