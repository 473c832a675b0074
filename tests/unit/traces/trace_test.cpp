#include <sqlite3.h>

#include <numeric>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/reader.hpp"
#include "traces/safetensors.hpp"
#include "traces/writer.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

// All rows of one column of a query, as text.
std::vector<std::string> query(const std::filesystem::path& database, const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open_v2(database.c_str(), &db, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK);
  std::vector<std::string> rows;
  const auto take = [](void* to, int columns, char** values, char**) {
    std::string row;
    for (int i = 0; i < columns; ++i)
      row += (i > 0 ? " " : "") + std::string(values[i] == nullptr ? "NULL" : values[i]);
    static_cast<std::vector<std::string>*>(to)->push_back(row);
    return 0;
  };
  CHECK(sqlite3_exec(db, sql.c_str(), take, &rows, nullptr) == SQLITE_OK);
  sqlite3_close(db);
  return rows;
}

}  // namespace

TEST_CASE("A recorded trace gives back every row, id, log-probability, eviction and step") {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.kvt";
  write_small_trace(path);
  const TraceReader reader = TraceReader::open(path);
  const TraceManifest m = small_manifest();
  CHECK(reader.path() == path);
  CHECK(reader.manifest().sequences[0].tokens == 8);
  CHECK(reader.manifest().sequences[0].stop_reason == "length");
  CHECK(reader.manifest().sequences[1].tokens == 4);
  CHECK(reader.manifest().sequences[1].stop_reason == "end_of_text");
  CHECK(reader.manifest().layers[1].alibi_slopes == std::vector<float>{0.25F, 0.0625F});
  for (const TraceSequence& sequence : reader.manifest().sequences) {
    for (std::uint32_t l = 0; l < 2; ++l) {
      const TraceLayer& layer = m.layers[l];
      const LayerKeysValues kv = reader.keys_values(sequence.id, LayerId(l));
      CHECK(kv.tokens == sequence.tokens);
      CHECK(kv.k == row_content(sequence.id, l, 'k', 0, sequence.tokens, 2UL * layer.kv_heads * layer.k_width));
      CHECK(kv.v == row_content(sequence.id, l, 'v', 0, sequence.tokens, 2UL * layer.kv_heads * layer.v_width));
      std::vector<std::byte> q;
      reader.for_each_query_block(sequence.id, LayerId(l), [&](std::uint32_t first, std::uint32_t rows, auto block) {
        const std::size_t width = 2UL * layer.query_heads * layer.k_width;
        CHECK(first * width == q.size());
        CHECK(rows * width == block.size());
        q.insert(q.end(), block.begin(), block.end());
      });
      CHECK(q == row_content(sequence.id, l, 'q', 0, sequence.tokens, 2UL * layer.query_heads * layer.k_width));
    }
  }
  CHECK(reader.token_ids(0) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(reader.token_ids(7) == std::vector<std::int64_t>{700, 701, 702, 703});
  CHECK(reader.logprobs(7) == std::vector<float>{0, -0.5F, -1, -1.5F});
  CHECK(
      reader.evictions(0, LayerId(0)) ==
      std::vector<EvictionRecord>{{0, 1, 0, 1, 0}, {0, 2, 0, 1, 1}, {0, 3, 0, 1, 2}, {0, 4, 0, 1, 3}, {0, 5, 0, 1, 4}});
  CHECK(reader.evictions(0, LayerId(1)) == std::vector<EvictionRecord>{{0, 2, 1, 0, 2}, {0, 4, 1, 0, 4}});
  CHECK(reader.evictions(7, LayerId(0)).empty());
  const std::vector<StepRecord> steps = reader.steps();
  REQUIRE(steps.size() == 6);
  CHECK(steps[0].phase == "prefill");
  CHECK(steps[5].phase == "decode");
  CHECK(steps[2].sequences == 2);
  CHECK(steps[3].sequences == 1);
  CHECK(steps[4].start_ns == 1040);
  CHECK(steps[4].end_ns == 1049);
  CHECK(steps[4].bytes[Cause::kActivations] == 5004);
}

TEST_CASE("Segments close at the end of a step, hold whole steps, and their size does not change what is read") {
  TemporaryFolder folder;
  write_small_trace(folder.path() / "many", 1);
  write_small_trace(folder.path() / "three", 512);
  write_small_trace(folder.path() / "one", 1U << 20);
  const auto segments = [&](const char* name) {
    std::size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path() / name / "segments"))
      n += entry.is_regular_file() ? 1 : 0;
    return n;
  };
  CHECK(segments("many") == kSmallSteps);
  CHECK(segments("three") == 3);
  CHECK(segments("one") == 1);
  const TraceReader many = TraceReader::open(folder.path() / "many");
  const TraceReader one = TraceReader::open(folder.path() / "one");
  for (std::uint32_t l = 0; l < 2; ++l) {
    CHECK(many.keys_values(0, LayerId(l)).k == one.keys_values(0, LayerId(l)).k);
    CHECK(many.keys_values(7, LayerId(l)).v == one.keys_values(7, LayerId(l)).v);
    CHECK(many.evictions(0, LayerId(l)) == one.evictions(0, LayerId(l)));
  }
  CHECK(many.token_ids(0) == one.token_ids(0));
  CHECK(many.steps().size() == one.steps().size());
  CHECK(inspect_trace(folder.path() / "many", true).intact_segments == kSmallSteps);
}

TEST_CASE("Two recordings of the same rows have the same bytes in segments, journal and manifest") {
  TemporaryFolder folder;
  write_small_trace(folder.path() / "a");
  write_small_trace(folder.path() / "b");
  for (const char* name : {"segments/00000.safetensors", "segments/00001.safetensors", "segments/00002.safetensors",
                           "journal.jsonl", "manifest.json"}) {
    CHECK(slurp(folder.path() / "a" / name) == slurp(folder.path() / "b" / name));
  }
}

TEST_CASE("Segments do not depend on command line, host or clock") {
  TemporaryFolder folder;
  write_small_trace(folder.path() / "a", 1U << 20);
  TraceManifest m = small_manifest();
  m.command_line = "another";
  m.host = "elsewhere";
  TraceWriter writer(folder.path() / "b", m, 1U << 20);
  for (std::uint32_t step = 0; step < kSmallSteps; ++step) small_step(writer, small_manifest(), step);
  writer.seal();
  CHECK(slurp(folder.path() / "a/segments/00000.safetensors") == slurp(folder.path() / "b/segments/00000.safetensors"));
  CHECK(slurp(folder.path() / "a/journal.jsonl") == slurp(folder.path() / "b/journal.jsonl"));
}

TEST_CASE("Every tensor of a segment is aligned to its element size and the checksum comes last") {
  TemporaryFolder folder;
  write_small_trace(folder.path() / "run.kvt");
  for (const char* name : {"00000", "00001", "00002"}) {
    const auto path = folder.path() / "run.kvt/segments" / (std::string(name) + ".safetensors");
    const SafetensorsFile file = SafetensorsFile::open(path).or_throw(path.string());
    for (const TensorInfo& t : file.header().tensors) CHECK(t.offset % size_of(t.type) == 0);
    CHECK(file.header().tensors.back().name == "checksum");
  }
}

TEST_CASE("kernels.sqlite has the engine's steps with clock times, and Nsight's empty tables") {
  TemporaryFolder folder;
  write_small_trace(folder.path() / "run.kvt");
  const auto db = folder.path() / "run.kvt/kernels.sqlite";
  CHECK(query(db, "SELECT * FROM kvroof_step WHERE step IN (0, 3)") ==
        std::vector<std::string>{"0 prefill 2 1000 1009 0 1000 2000 3000 4000 5000",
                                 "3 decode 1 1030 1039 3 1003 2003 3003 4003 5003"});
  CHECK(query(db, "SELECT name FROM pragma_table_info('kvroof_step')") ==
        std::vector<std::string>{"step", "phase", "sequences", "start_ns", "end_ns", "weights_bytes", "kv_read_bytes",
                                 "kv_write_bytes", "scores_bytes", "compaction_bytes", "activations_bytes"});
  CHECK(query(db, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL") == std::vector<std::string>{"0"});
  CHECK(
      query(db, "SELECT k.start, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName")
          .empty());
}

TEST_CASE("Ids that are known after the last step are kept") {
  TemporaryFolder folder;
  const TraceManifest m = small_manifest();
  TraceWriter writer(folder.path() / "run.kvt", m, 1);
  small_step(writer, m, 0);
  const std::vector<std::int64_t> id{42};
  const std::vector<float> logprob{-3};
  writer.add_tokens(0, 3, id, logprob);
  writer.seal();
  const TraceReader reader = TraceReader::open(folder.path() / "run.kvt");
  CHECK(reader.token_ids(0) == std::vector<std::int64_t>{0, 1, 2, 42});
  CHECK(reader.manifest().sequences[0].tokens == 3);
  CHECK(reader.steps().size() == 1);
}

TEST_CASE("A recording without a step is a complete, empty trace") {
  TemporaryFolder folder;
  TraceWriter(folder.path() / "run.kvt", small_manifest()).seal();
  const TraceReader reader = TraceReader::open(folder.path() / "run.kvt");
  CHECK(reader.steps().empty());
  CHECK(reader.keys_values(7, LayerId(1)).k.empty());
}

TEST_CASE("A block of queries stays near one mebibyte, however many rows a segment holds") {
  TemporaryFolder folder;
  TraceManifest m = small_manifest();
  m.layers = {m.layers[0]};
  m.layers[0].query_heads = 64;
  m.layers[0].kv_heads = 1;
  m.layers[0].k_width = 64;
  m.sequences = {m.sequences[0]};
  TraceWriter writer(folder.path() / "run.kvt", m);
  add_small_rows(writer, m, 0, 0, 1000);  // 8 KiB of queries a row
  writer.end_step({0, "prefill", 1, 0, 0, {}});
  writer.seal();
  std::uint32_t next = 0;
  TraceReader::open(folder.path() / "run.kvt").for_each_query_block(0, LayerId(0), [&](auto first, auto rows, auto q) {
    CHECK(first == next);
    CHECK(q.size() <= (1U << 20));
    CHECK(std::vector<std::byte>(q.begin(), q.end()) == row_content(0, 0, 'q', first, rows, 8192));
    next += rows;
  });
  CHECK(next == 1000);
}

TEST_CASE("A recorder refuses a folder that is in use, and one that cannot be made") {
  TemporaryFolder folder;
  write_file(folder.path() / "file", "x");
  CHECK_THROWS_AS(TraceWriter(folder.path(), small_manifest()), Error);
  CHECK_THROWS_AS(TraceWriter(folder.path() / "file", small_manifest()), Error);
  CHECK_THROWS_AS(TraceWriter(folder.path() / "absent/run.kvt", small_manifest()), Error);
  CHECK_THROWS_AS(TraceWriter("/proc/run.kvt", small_manifest()), Error);
  std::filesystem::create_directory(folder.path() / "empty.kvt");
  TraceWriter(folder.path() / "empty.kvt", small_manifest()).seal();
  CHECK(inspect_trace(folder.path() / "empty.kvt", true).sealed);
}

TEST_CASE("A recorder holds its callers to order, widths and whole steps") {
  TemporaryFolder folder;
  const TraceManifest m = small_manifest();
  const std::vector<std::byte> bytes(1000);
  const auto span = [&](std::size_t n) { return std::span(bytes).first(n); };
  TraceWriter writer(folder.path() / "run.kvt", m);
  CHECK_THROWS_AS(writer.add_rows(0, LayerId(0), 1, 1, span(32), span(16), span(8)), std::logic_error);   // a gap
  CHECK_THROWS_AS(writer.add_rows(0, LayerId(0), 0, 1, span(32), span(16), span(16)), std::logic_error);  // v too wide
  CHECK_THROWS_AS(writer.add_rows(0, LayerId(2), 0, 1, span(32), span(16), span(8)),
                  std::logic_error);  // no such layer
  CHECK_THROWS_AS(writer.add_rows(1, LayerId(0), 0, 1, span(32), span(16), span(8)),
                  std::logic_error);  // no such sequence
  writer.add_rows(0, LayerId(0), 0, 1, span(32), span(16), span(8));
  CHECK_THROWS_AS(writer.end_step({0, "decode", 1, 0, 0, {}}), std::logic_error);  // layer 1 has no row
  CHECK_THROWS_AS(writer.seal(), std::logic_error);                                // inside a step
}
