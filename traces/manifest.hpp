// What a trace says about itself: model, attention parameters of each layer, sequences, provenance.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/alibi.hpp"
#include "sim/core/dtype.hpp"
#include "sim/core/error.hpp"
#include "sim/core/kv_type.hpp"

namespace kvroof {

inline constexpr std::uint32_t kTraceFormatVersion = 1;

// How rotary embedding was applied to q and k, so that it can be undone: pair i of the rotated elements turned by
// position · frequency i, and both grew by `magnitude`.
struct RotaryInfo {
  std::string style = "none";  // none | half_split | adjacent_pairs
  std::uint32_t dims = 0;      // rotated elements of a head
  double theta = 10000.0;      // frequency i is theta^(−2i / dims) where no table says otherwise
  std::uint32_t first = 0;     // first rotated element: after the latent part of a latent row
  float magnitude = 1;
  std::vector<float> inverse_frequencies = {};  // [dims / 2] of a scaled rotation, or empty
  // Sequences whose prompt is longer than this took the second table; 0: there is none.
  std::uint32_t long_from = 0;
  std::vector<float> long_inverse_frequencies = {};
};

struct TraceLayer {
  std::uint32_t query_heads = 0;
  std::uint32_t kv_heads = 0;  // query head h reads KV head h / (query_heads / kv_heads)
  std::uint32_t k_width = 0;   // elements of one k row (and of a query) of one head
  std::uint32_t v_width = 0;   // of a latent row: v is the leading part of k
  float scale = 0;             // multiplies q·k
  float softcap = 0;           // 0: none
  // Sliding window in tokens, own position included; 0: none. Tokens that it hides left the cache without being listed
  // among the evictions.
  std::uint32_t window = 0;
  std::vector<float> alibi_slopes;  // one for each query head, or empty
  float alibi_rounded_scale = 0;    // see AlibiBias
  // A logit of each query head that takes part in its softmax without a token; empty: none does.
  std::vector<float> attention_sinks;
  RotaryInfo rotary;

  [[nodiscard]] AlibiBias alibi(std::uint32_t query_head) const {
    return alibi_slopes.empty() ? AlibiBias{} : AlibiBias{alibi_slopes[query_head], alibi_rounded_scale};
  }
  [[nodiscard]] std::optional<float> sink(std::uint32_t query_head) const {
    return attention_sinks.empty() ? std::nullopt : std::optional(attention_sinks[query_head]);
  }
};

struct TraceSequence {
  std::uint32_t id = 0;
  std::uint32_t prompt = 0;                // prompt tokens
  std::uint32_t requested_new_tokens = 0;  // Keyformer's T
  std::uint32_t tokens = 0;                // tokens whose q, k, v are recorded (known at the seal)
  std::string stop_reason = "unknown";     // length | end_of_text | interrupted | context | imported | failed | unknown
};

struct TraceManifest {
  std::uint32_t format_version = kTraceFormatVersion;
  std::string tool_version;
  // profile: without attention, and so without layers and sequences: a profiler's records alone, or steps of the engine
  // whose queries, keys and values were not captured.
  std::string source = "engine";   // engine | import | profile
  std::string model_name;          // empty for imported tensors
  std::string model_path;
  std::string model_shape_json;    // ModelShape as JSON text; empty for imported tensors
  std::string backend;             // reference | fast | cuda
  std::string linear;              // own | cublaslt VERSION: of the CUDA back end; empty: there was no choice
  std::string policy = "full";     // the policy the run was recorded under
  std::uint64_t seed = 0;
  DType weight_type = DType::kF32;
  DType kv_type = DType::kF32;     // of q, k and v as attention consumed them
  std::optional<KvType> cache_type = {};  // of a quantised cache, which gave k and v back so; none: kv_type
  std::string command_line;
  std::string host;
  std::vector<TraceLayer> layers;
  std::vector<TraceSequence> sequences;
};

// Whether the trace holds attention (q, k, v).
inline bool has_attention(const TraceManifest& manifest) { return manifest.source != "profile"; }
// The type whose bytes the cache of the run took.
inline KvType cache_type_of(const TraceManifest& manifest) {
  return manifest.cache_type.value_or(KvType(manifest.kv_type));
}
// Whether kvroof's own engine ran the steps of the trace, with or without their attention.
inline bool of_own_engine(const TraceManifest& manifest) { return !manifest.backend.empty(); }

std::string manifest_to_json(const TraceManifest& manifest);
// Refuses a newer format version, missing or mistyped fields, and numbers out of range (layers and heads ≤ 1,024;
// tokens ≤ 2^24; query_heads a multiple of kv_heads; …), naming the field.
Result<TraceManifest> manifest_from_json(std::string_view text);
// Whether the format version is what it is refused for.
bool has_newer_format(std::string_view manifest);

}  // namespace kvroof
