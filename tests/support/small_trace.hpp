// Small traces with known content, shared by the tests of traces.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "traces/reader.hpp"
#include "traces/writer.hpp"

namespace kvroof::test {

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Two layers of different shapes and two sequences of different lengths, in bf16.
inline TraceManifest small_manifest() {
  TraceManifest m;
  m.tool_version = "0.0-test";
  m.model_name = "small";
  m.model_shape_json = R"({"heads":4,"layers":2})";
  m.backend = "reference";
  m.policy = "h2o:budget=3";
  m.seed = 18446744073709551615U;
  m.kv_type = DType::kBF16;
  m.command_line = "kvroof record";
  m.host = "here";
  TraceLayer first;
  first.query_heads = 4;
  first.kv_heads = 2;
  first.k_width = 4;
  first.v_width = 2;
  first.scale = 0.5F;
  first.rotary = {"half_split", 4, 500000.0};
  TraceLayer second = first;
  second.query_heads = 2;
  second.kv_heads = 1;
  second.k_width = 6;
  second.alibi_slopes = {0.25F, 0.0625F};
  second.window = 4;
  second.softcap = 30;
  m.layers = {first, second};
  m.sequences = {{0, 3, 6, 0, "unknown"}, {7, 2, 3, 0, "unknown"}};
  return m;
}

// A byte that depends on everything that names it, so that any mix-up shows.
inline std::vector<std::byte> row_content(std::uint32_t sequence, std::uint32_t layer, char tensor, std::uint32_t first,
                                          std::uint32_t rows, std::uint64_t row_bytes) {
  std::vector<std::byte> bytes(rows * row_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint64_t position = first + i / row_bytes;
    bytes[i] = static_cast<std::byte>(
        (sequence * 31 + layer * 57 + static_cast<unsigned char>(tensor) + position * 13 + (i % row_bytes) * 7) & 0xff);
  }
  return bytes;
}

inline void add_small_rows(TraceWriter& writer, const TraceManifest& m, std::uint32_t sequence, std::uint32_t first,
                           std::uint32_t rows) {
  for (std::uint32_t l = 0; l < m.layers.size(); ++l) {
    const TraceLayer& layer = m.layers[l];
    const auto content = [&](char tensor, std::uint32_t heads, std::uint32_t width) {
      return row_content(sequence, l, tensor, first, rows, std::uint64_t{heads} * width * size_of(m.kv_type));
    };
    writer.add_rows(sequence, LayerId(l), first, rows, content('q', layer.query_heads, layer.k_width),
                    content('k', layer.kv_heads, layer.k_width), content('v', layer.kv_heads, layer.v_width));
  }
}

inline constexpr std::uint32_t kSmallSteps = 6;  // the prompts, then five decode steps

// Sequence 0: prompt 3, one row in each step. Sequence 7: prompt 2, stops after two decode steps.
inline void small_step(TraceWriter& writer, const TraceManifest& m, std::uint32_t step) {
  const auto add = [&](std::uint32_t sequence, std::uint32_t first, std::uint32_t rows) {
    add_small_rows(writer, m, sequence, first, rows);
    std::vector<std::int64_t> ids(rows);
    std::vector<float> logprobs(rows);
    for (std::uint32_t i = 0; i < rows; ++i) {
      ids[i] = 100 * sequence + first + i;
      logprobs[i] = first + i == 0 ? 0.0F : -0.5F * static_cast<float>(first + i);
    }
    writer.add_tokens(sequence, first, ids, logprobs);
  };
  if (step == 0) {
    add(0, 0, 3);
    add(7, 0, 2);
  } else {
    add(0, 2 + step, 1);
    if (step <= 2) add(7, 1 + step, 1);
    writer.add_eviction({0, step, 0, 1, step - 1});
    if (step % 2 == 0) writer.add_eviction({0, step, 1, 0, step});
  }
  StepRecord record{step, step == 0 ? "prefill" : "decode", step <= 2 ? 2U : 1U, 1000 + 10 * step, 1009 + 10 * step,
                    {}};
  for (std::size_t c = 0; c < kCauses; ++c) record.bytes.bytes[c] = 1000 * c + step;
  writer.end_step(record);
}

// Three segments of one, two and three steps, sealed.
inline void write_small_trace(const std::filesystem::path& path, std::uint64_t segment_bytes = 512) {
  const TraceManifest m = small_manifest();
  TraceWriter writer(path, m, segment_bytes);
  for (std::uint32_t step = 0; step < kSmallSteps; ++step) small_step(writer, m, step);
  writer.set_stop_reason(0, "length");
  writer.set_stop_reason(7, "end_of_text");
  writer.seal();
}

// Everything that a reader can say about a trace, as one text.
inline std::string everything(const TraceReader& reader) {
  const TraceManifest& m = reader.manifest();
  std::string all = manifest_to_json(m);
  const auto put = [&](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()) += '|';
  };
  for (const TraceSequence& sequence : m.sequences) {
    for (std::uint32_t l = 0; l < m.layers.size(); ++l) {
      const LayerKeysValues kv = reader.keys_values(sequence.id, LayerId(l));
      put(kv.k);
      put(kv.v);
      reader.for_each_query_block(sequence.id, LayerId(l), [&](auto first, auto rows, auto q) {
        all += std::to_string(first) + "+" + std::to_string(rows) + ":";
        put(q);
      });
      for (const EvictionRecord& e : reader.evictions(sequence.id, LayerId(l))) {
        for (const std::uint32_t x : {e.sequence, e.step, e.layer, e.head, e.position}) all += std::to_string(x) + " ";
      }
    }
    put(reader.token_ids(sequence.id));
    put(reader.logprobs(sequence.id));
  }
  for (const StepRecord& s : reader.steps()) {
    all += s.phase + std::to_string(s.step) + " " + std::to_string(s.sequences) + " " + std::to_string(s.start_ns) +
           " " + std::to_string(s.end_ns);
    for (const std::uint64_t bytes : s.bytes.bytes) all += " " + std::to_string(bytes);
  }
  return all;
}

}  // namespace kvroof::test
