// Writing of segments; traces/format.md section 2 is the layout.
#include <algorithm>

#include "traces/checksum.hpp"
#include "traces/segment.hpp"

namespace kvroof {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Collects the tensors of a segment; empty ones are left out.
class TensorList {
 public:
  void add(std::string name, DType type, std::vector<std::uint64_t> shape, std::span<const std::byte> data) {
    if (!data.empty()) tensors_.push_back({std::move(name), type, std::move(shape), data});
  }
  [[nodiscard]] const std::vector<TensorToWrite>& tensors() const { return tensors_; }

 private:
  std::vector<TensorToWrite> tensors_;
};

void add_rows(TensorList& list, const std::string& prefix, const LayerBuffer& buffer, const TraceLayer& layer,
              DType type) {
  const std::uint64_t rows = buffer.q.size() / row_bytes(layer, type).q;
  list.add(prefix + "q", type, {rows, layer.query_heads, layer.k_width}, buffer.q);
  list.add(prefix + "k", type, {rows, layer.kv_heads, layer.k_width}, buffer.k);
  list.add(prefix + "v", type, {rows, layer.kv_heads, layer.v_width}, buffer.v);
}

// Types of eight bytes first, then four, so that every tensor is aligned to its own element size.
TensorList list_tensors(const SegmentBuffer& buffer, const TraceManifest& manifest) {
  TensorList list;
  list.add("steps", DType::kI64, {buffer.steps.size() / kStepColumns, kStepColumns}, bytes_of(buffer.steps));
  if (std::any_of(buffer.experts.begin(), buffer.experts.end(), [](std::int64_t x) { return x != 0; })) {
    list.add("x-experts", DType::kI64, {buffer.experts.size()}, bytes_of(buffer.experts));
  }
  if (buffer.resident.size() == buffer.steps.size() / kStepColumns) {
    list.add("x-kv-resident", DType::kI64, {buffer.resident.size()}, bytes_of(buffer.resident));
  }
  const auto each_sequence = [&](auto&& body) {
    for (std::size_t s = 0; s < buffer.sequences.size(); ++s) {
      body(buffer.sequences[s], fmt::format("s{}.", manifest.sequences[s].id));
    }
  };
  each_sequence([&](const SequenceBuffer& sequence, const std::string& prefix) {
    list.add(prefix + "ids", DType::kI64, {sequence.ids.size()}, bytes_of(sequence.ids));
  });
  each_sequence([&](const SequenceBuffer& sequence, const std::string& prefix) {
    list.add(prefix + "logprobs", DType::kF32, {sequence.logprobs.size()}, bytes_of(sequence.logprobs));
    for (std::size_t l = 0; l < sequence.layers.size(); ++l) {
      const std::vector<std::int32_t>& evictions = sequence.layers[l].evictions;
      list.add(fmt::format("{}l{}.evictions", prefix, l), DType::kI32,
               {evictions.size() / kEvictionColumns, kEvictionColumns}, bytes_of(evictions));
    }
  });
  each_sequence([&](const SequenceBuffer& sequence, const std::string& prefix) {
    for (std::size_t l = 0; l < sequence.layers.size(); ++l) {
      add_rows(list, fmt::format("{}l{}.", prefix, l), sequence.layers[l], manifest.layers[l], manifest.kv_type);
    }
  });
  return list;
}

bool has_rows_or_evictions(const SequenceBuffer& sequence) {
  return std::any_of(sequence.layers.begin(), sequence.layers.end(),
                     [](const LayerBuffer& l) { return !l.q.empty() || !l.evictions.empty(); });
}

std::string step_columns() {
  std::string names = "step phase sequences";
  for (const std::string_view cause : kCauseNames) names += fmt::format(" {}_bytes", cause);
  return names;
}

std::map<std::string, std::string> describe(const SegmentBuffer& buffer, const TraceManifest& manifest) {
  std::map<std::string, std::string> metadata = {
      {"format", fmt::format("kvroof-trace-{}", kTraceFormatVersion)},
      {"segment", std::to_string(buffer.segment)},
      {"first_step", std::to_string(buffer.first_step)},
      {"steps", std::to_string(buffer.steps.size() / kStepColumns)},
      {"steps.columns", step_columns()},
  };
  for (std::size_t s = 0; s < buffer.sequences.size(); ++s) {
    const SequenceBuffer& sequence = buffer.sequences[s];
    const std::string prefix = fmt::format("s{}.", manifest.sequences[s].id);
    if (has_rows_or_evictions(sequence)) metadata[prefix + "first_row"] = std::to_string(sequence.first_row);
    if (!sequence.ids.empty()) metadata[prefix + "first_id"] = std::to_string(sequence.first_id);
  }
  if (buffer.segment == 0) {
    TraceManifest copy = manifest;
    // What differs between two runs of the same work stays out of the segments.
    copy.command_line.clear();
    copy.host.clear();
    metadata["manifest"] = manifest_to_json(copy);
  }
  return metadata;
}

}  // namespace

RowBytes row_bytes(const TraceLayer& layer, DType type) {
  const std::uint64_t element = size_of(type);
  return {std::uint64_t{layer.query_heads} * layer.k_width * element,
          std::uint64_t{layer.kv_heads} * layer.k_width * element,
          std::uint64_t{layer.kv_heads} * layer.v_width * element};
}

JournalLine write_segment(const std::filesystem::path& trace, const SegmentBuffer& buffer,
                          const TraceManifest& manifest) {
  const TensorList list = list_tensors(buffer, manifest);
  const std::filesystem::path path = trace / segment_file(buffer.segment);
  JournalLine line;
  line.segment = buffer.segment;
  line.first_step = buffer.first_step;
  line.steps = static_cast<std::uint32_t>(buffer.steps.size() / kStepColumns);
  line.xxh3 =
      write_safetensors(path, list.tensors(), describe(buffer, manifest), {.self_checksum = true, .durable = false});
  line.bytes = std::filesystem::file_size(path);
  return line;
}

}  // namespace kvroof
