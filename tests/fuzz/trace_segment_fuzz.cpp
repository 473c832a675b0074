// Fuzz target: any bytes as a segment of a trace with a known manifest. What is accepted lies inside the file.
#include <cstdint>
#include <span>

#include "tests/support/small_trace.hpp"
#include "traces/segment.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const kvroof::TraceManifest manifest = kvroof::test::small_manifest();
  const auto header = kvroof::parse_safetensors_header(std::as_bytes(std::span(data, size)), size);
  if (!header) return 0;
  const auto index = kvroof::index_segment(header.value(), manifest);
  if (!index) {
    kvroof::check(!index.error().empty(), "a refusal says why");
    return 0;
  }
  const auto inside = [&](std::uint64_t offset, std::uint64_t bytes) {
    kvroof::check(offset <= size && bytes <= size - offset, "what is indexed lies inside the file");
  };
  inside(index.value().steps, index.value().step_count * kvroof::kStepColumns * 8);
  for (const kvroof::SequenceIndex& s : index.value().sequences) {
    inside(s.ids, s.id_count * std::uint64_t{8});
    inside(s.logprobs, s.id_count * std::uint64_t{4});
    for (std::size_t l = 0; l < s.layers.size(); ++l) {
      const kvroof::RowBytes row = kvroof::row_bytes(manifest.layers[l], manifest.kv_type);
      inside(s.layers[l].q, s.rows * row.q);
      inside(s.layers[l].k, s.rows * row.k);
      inside(s.layers[l].v, s.rows * row.v);
      inside(s.layers[l].evictions, s.layers[l].eviction_count * kvroof::kEvictionColumns * 4);
    }
  }
  kvroof::SegmentChain chain(manifest);
  if (!chain.append(index.value())) kvroof::check(index.value().segment == 0, "a chain starts with segment 0");
  return 0;
}
