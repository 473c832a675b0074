// Traces of every released format version stay readable: tests/golden/trace-v1 was written by the first release.
#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

const std::filesystem::path kVersion1 = std::string(KVROOF_SOURCE_DIR) + "/tests/golden/trace-v1";

}  // namespace

TEST_CASE("A trace of format version 1 reads as it was recorded") {
  CHECK(inspect_trace(kVersion1, true).intact);
  const TraceReader reader = TraceReader::open(kVersion1);
  const TraceManifest m = small_manifest();
  for (const TraceSequence& sequence : reader.manifest().sequences) {
    for (std::uint32_t l = 0; l < 2; ++l) {
      const TraceLayer& layer = m.layers[l];
      const LayerKeysValues kv = reader.keys_values(sequence.id, LayerId(l));
      CHECK(kv.k == row_content(sequence.id, l, 'k', 0, sequence.tokens, 2UL * layer.kv_heads * layer.k_width));
      CHECK(kv.v == row_content(sequence.id, l, 'v', 0, sequence.tokens, 2UL * layer.kv_heads * layer.v_width));
    }
  }
  CHECK(reader.evictions(0, LayerId(0)).size() == 5);
  CHECK(reader.steps()[3].start_ns == 1030);
  CHECK_FALSE(reader.steps()[3].kv_resident_bytes);  // which later recorders say
}

TEST_CASE("The recorder writes the bytes of format version 1") {
  TemporaryFolder folder;
  write_small_trace(folder.path() / "run.kvt");
  for (const char* name : {"manifest.json", "journal.jsonl", "segments/00000.safetensors", "segments/00001.safetensors",
                           "segments/00002.safetensors"}) {
    INFO(name);
    CHECK(slurp(folder.path() / "run.kvt" / name) == slurp(kVersion1 / name));
  }
}
