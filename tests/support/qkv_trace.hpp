// Traces made of given q, k and v, and the same tensors as double for independent computations.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "sim/core/dtype.hpp"
#include "traces/writer.hpp"

namespace kvroof::test {

struct Qkv {
  std::uint32_t layers = 1, heads = 2, kv_heads = 2, tokens = 0, d = 8;
  DType type = DType::kF32;
  std::vector<float> q;  // [layers, heads, tokens, d], already representable in `type`
  std::vector<float> k;  // [layers, kv_heads, tokens, d]
  std::vector<float> v;

  [[nodiscard]] std::span<const float> row(const std::vector<float>& x, std::uint32_t of, std::uint32_t layer,
                                           std::uint32_t head, std::uint32_t token) const {
    return std::span(x).subspan(((std::size_t{layer} * of + head) * tokens + token) * d, d);
  }
  [[nodiscard]] std::span<const float> q_row(std::uint32_t layer, std::uint32_t head, std::uint32_t token) const {
    return row(q, heads, layer, head, token);
  }
  // k and v by query head.
  [[nodiscard]] std::span<const float> k_row(std::uint32_t layer, std::uint32_t head, std::uint32_t token) const {
    return row(k, kv_heads, layer, head / (heads / kv_heads), token);
  }
  [[nodiscard]] std::span<const float> v_row(std::uint32_t layer, std::uint32_t head, std::uint32_t token) const {
    return row(v, kv_heads, layer, head / (heads / kv_heads), token);
  }
};

// Normal values; `spread` scales q and k, so that attention is as peaky as its square says.
inline Qkv random_qkv(Qkv shape, std::uint32_t seed, double spread = 1.0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](std::vector<float>& x, std::uint32_t heads, double scale) {
    x.resize(std::size_t{shape.layers} * heads * shape.tokens * shape.d);
    for (float& value : x) value = round_to(shape.type, static_cast<float>(scale * normal(engine)));
  };
  fill(shape.q, shape.heads, spread);
  fill(shape.k, shape.kv_heads, spread);
  fill(shape.v, shape.kv_heads, 1.0);
  return shape;
}

struct TraceOptions {
  std::uint32_t prompt = 1;
  std::uint32_t requested = 0;  // 0: tokens − prompt
  std::uint32_t sequences = 1;  // all with the same tensors
  std::uint32_t last_prompt = 0;  // of the last sequence; 0: as the others
  std::string policy = "full";
  std::string source = "import";
  std::function<void(TraceLayer&)> edit_layer;
  std::vector<EvictionRecord> evictions;
};

inline TraceManifest manifest_of(const Qkv& x, const TraceOptions& options) {
  TraceManifest m;
  m.source = options.source;
  m.policy = options.policy;
  m.kv_type = m.weight_type = x.type;
  for (std::uint32_t layer = 0; layer < x.layers; ++layer) {
    TraceLayer l;
    l.query_heads = x.heads;
    l.kv_heads = x.kv_heads;
    l.k_width = l.v_width = x.d;
    l.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(x.d)));
    if (options.edit_layer) options.edit_layer(l);
    m.layers.push_back(l);
  }
  for (std::uint32_t s = 0; s < options.sequences; ++s) {
    TraceSequence sequence;
    sequence.id = s;
    const bool last = s + 1 == options.sequences && options.last_prompt > 0;
    sequence.prompt = last ? options.last_prompt : options.prompt;
    sequence.requested_new_tokens = options.requested > 0 ? options.requested : x.tokens - options.prompt;
    sequence.stop_reason = "imported";
    m.sequences.push_back(sequence);
  }
  return m;
}

// All tokens of one layer, token-major, in the type of the tensors.
inline std::vector<std::byte> token_major(const Qkv& x, const std::vector<float>& from, std::uint32_t heads,
                                          std::uint32_t layer) {
  std::vector<float> rows;
  for (std::uint32_t t = 0; t < x.tokens; ++t) {
    for (std::uint32_t h = 0; h < heads; ++h) {
      const auto row = x.row(from, heads, layer, h, t);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  }
  std::vector<std::byte> bytes(rows.size() * size_of(x.type));
  convert_from_float(x.type, rows, bytes.data());
  return bytes;
}

inline void write_trace(const std::filesystem::path& path, const Qkv& x, const TraceOptions& options) {
  TraceWriter writer(path, manifest_of(x, options));
  for (std::uint32_t s = 0; s < options.sequences; ++s) {
    for (std::uint32_t layer = 0; layer < x.layers; ++layer) {
      writer.add_rows(s, LayerId(layer), 0, x.tokens, token_major(x, x.q, x.heads, layer),
                      token_major(x, x.k, x.kv_heads, layer), token_major(x, x.v, x.kv_heads, layer));
    }
  }
  for (const EvictionRecord& eviction : options.evictions) writer.add_eviction(eviction);
  StepRecord step;
  step.phase = "prefill";
  step.sequences = options.sequences;
  writer.end_step(step);
  writer.seal();
}

}  // namespace kvroof::test
