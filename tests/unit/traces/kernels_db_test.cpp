#include "traces/kernels_db.hpp"

#include <csignal>
#include <cstdlib>

#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/kernel_names.hpp"
#include "traces/kernel_reader.hpp"
#include "traces/kernels_left.hpp"
#include "traces/sqlite.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

TEST_CASE("A kernel's short name has neither return type, namespaces, template arguments nor parameters") {
  CHECK(demangled_name(kAttention) == "void kvroof::attention<64>(float const*, float*)");
  CHECK(demangled_name("i") == "i");  // "int", were it read as a mangled type
  CHECK(demangled_name("_Znot mangled") == "_Znot mangled");
  const std::vector<std::pair<std::string, std::string>> names = {
      {"void kvroof::attention<64>(float const*, float*)", "attention"},
      {"ampere_bf16_s16816gemm_128x64_tn", "ampere_bf16_s16816gemm_128x64_tn"},
      {"void at::native::(anonymous namespace)::fill<int, (a)3>(int) const", "fill"},
      {"void f<g(int)::{lambda()#1}>(void (*)(int))", "f"},
      {"A::operator()(int)", "operator()"},
      {"bool ns::operator< <int>(int)", "operator<"},
      {"outer(int)::inner(int)", "inner"},
      {"unclosed(", "unclosed"},
      {"", ""},
  };
  for (const auto& [name, expected] : names) {
    INFO(name);
    CHECK(short_name(name) == expected);
  }
}

TEST_CASE("What Nsight users ask of an export is answered by kernels.sqlite") {
  const TemporaryFolder folder;
  write_profile_trace(folder.path() / "run.kvt");
  const fs::path db = folder.path() / "run.kvt/kernels.sqlite";
  SECTION("time by kernel") {
    CHECK(query(db,
                "SELECT s.value, count(*), sum(k.end - k.start), min(k.end - k.start), max(k.end - k.start) "
                "FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName "
                "GROUP BY s.value ORDER BY 3 DESC, 1") == "gemm|2|700|300|400\nattention|2|500|200|300\n");
    CHECK(query(db, "SELECT DISTINCT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = "
                    "k.demangledName ORDER BY 1") == "gemm\nvoid kvroof::attention<64>(float const*, float*)\n");
  }
  SECTION("the launch of each kernel, by correlation and process") {
    CHECK(query(db,
                "SELECT k.start, k.start - r.start, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k "
                "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId AND "
                "r.globalTid / 0x1000000 % 0x1000000 = k.globalPid / 0x1000000 % 0x1000000 "
                "JOIN StringIds s ON s.id = r.nameId ORDER BY 1") ==
          "1000|200|cudaGraphLaunch_v10000\n1500|700|cudaGraphLaunch_v10000\n2000|150|cudaGraphLaunch_v10000\n"
          "2300|450|cudaGraphLaunch_v10000\n");
    CHECK(query(db, "SELECT eventClass, globalTid % 0x1000000 FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId "
                    "= 11") == "1|43\n");
  }
  SECTION("gaps between pieces of work") {
    CHECK(query(db,
                "WITH work AS (SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL "
                "SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY) "
                "SELECT sum(start - before) FROM (SELECT start, lag(end) OVER (ORDER BY start) AS before FROM work) "
                "WHERE start > before") == "300\n");
  }
  SECTION("kernels under a range of the application") {
    CHECK(query(db,
                "SELECT coalesce(n.text, t.value), count(*), sum(k.end - k.start) FROM NVTX_EVENTS n "
                "LEFT JOIN StringIds t ON t.id = n.textId JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON "
                "r.globalTid = n.globalTid AND r.start BETWEEN n.start AND n.end JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON "
                "k.correlationId = r.correlationId AND k.globalPid / 0x1000000 = r.globalTid / 0x1000000 "
                "WHERE n.eventType = 59 GROUP BY 1 ORDER BY 1") == "step 0|2|600\nstep 1|2|600\n");
  }
  SECTION("copies, memory, device, version") {
    CHECK(query(db,
                "SELECT e.label, s.label, d.label, sum(m.bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY m "
                "JOIN ENUM_CUDA_MEMCPY_OPER e ON e.id = m.copyKind JOIN ENUM_CUDA_MEM_KIND s ON s.id = m.srcKind "
                "JOIN ENUM_CUDA_MEM_KIND d ON d.id = m.dstKind GROUP BY 1") == "Device-to-Host|Device|Pinned|4096\n");
    CHECK(query(db, "SELECT bytes, memKind, memoryOperationType, pc, correlationId, streamId, name FROM "
                    "CUDA_GPU_MEMORY_USAGE_EVENTS") == "1048576|2|0|49374|10|7|weights\n");
    CHECK(query(db, "SELECT localMemoryPoolAddress, localMemoryPoolReleaseThreshold, localMemoryPoolSize, "
                    "localMemoryPoolUtilizedSize, importedMemoryPoolAddress, importedMemoryPoolProcessId FROM "
                    "CUDA_GPU_MEMORY_USAGE_EVENTS") == "57344|0|2097152|1048576|NULL|NULL\n");
    CHECK(query(db, "SELECT start, globalPid / 0x1000000, deviceId, address, operationType, poolType, correlationId, "
                    "minBytesToKeep, localMemoryPoolReleaseThreshold, localMemoryPoolSize, localMemoryPoolUtilizedSize "
                    "FROM CUDA_GPU_MEMORY_POOL_EVENTS ORDER BY 1") ==
          "650|42|0|57344|1|1|9|NULL|0|2097152|0\n2700|42|0|57344|3|1|13|4096|0|1048576|1048576\n");
    CHECK(query(db, "SELECT name, chipName, smCount FROM TARGET_INFO_GPU") == "NVIDIA H200|GH100|132\n");
    CHECK(query(db, "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_SCHEMA_VERSION'") == "3.16.1\n");
    CHECK(query(db, "SELECT duration, startTime, stopTime FROM ANALYSIS_DETAILS") == "1600|1000|2600\n");
  }
}

TEST_CASE("A trace of a profiler's records alone is sealed, intact and without attention") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "run.kvt";
  write_profile_trace(path);
  const TraceReport report = inspect_trace(path, true);
  CHECK(report.sealed);
  CHECK(report.intact);
  CHECK(report.segments == 0);
  CHECK_FALSE(has_attention(TraceReader::open(path).manifest()));
  try {
    static_cast<void>(TraceReader::open_attention(path));
    FAIL("it was opened");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::kUsage);
    CHECK(std::string(e.what()).ends_with("holds a profiler's records alone, no queries, keys and values"));
  }
  TraceManifest without_layers = small_manifest();
  without_layers.layers.clear();
  CHECK_THROWS_AS(TraceWriter(folder.path() / "other.kvt", without_layers), Error);
  TraceManifest with_layers = small_manifest();
  with_layers.source = "profile";
  CHECK_THROWS_AS(TraceWriter(folder.path() / "other.kvt", with_layers), Error);
}

TEST_CASE("What was flushed outlives the death of the process that wrote it, whole") {
  const TemporaryFolder folder;
  const fs::path db = folder.path() / "kernels.sqlite";
  const pid_t writer = fork();
  REQUIRE(writer >= 0);
  if (writer == 0) {
    KernelDatabase database(db);
    for (std::uint32_t i = 1; i <= 30; ++i) {
      database.add(kernel(10 * i, 10 * i + 5, i, kAttention));
      if (i == 20) database.flush();
    }
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(writer, &status, 0);
  REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  REQUIRE(look_at_left_kernels(staged_kernels_db(db)).has_records);
  CHECK(query(staged_kernels_db(db), "SELECT count(*), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL") == "20|205\n");
}

TEST_CASE("Work is read by its start, with what the engine meant by it") {
  const TemporaryFolder folder;
  write_profile_trace(folder.path() / "run.kvt");
  const KernelReader reader = KernelReader::open(folder.path() / "run.kvt");
  const KernelCounts counts = reader.counts();
  CHECK(counts.kernels == 4);
  CHECK(counts.copies == 1);
  CHECK(counts.calls == 4);
  CHECK(counts.first_ns == 1000);
  CHECK(counts.last_ns == 2600);
  CHECK(reader.notes() == std::vector<std::pair<std::string, std::string>>{{"level", "trace"}});
  REQUIRE(reader.devices().size() == 1);
  CHECK(reader.devices()[0].name == "NVIDIA H200");
  std::string seen;
  reader.for_each_work([&](const WorkRow& row) {
    seen += fmt::format("{} {}..{} p{}", row.name, row.work.start_ns, row.work.end_ns, row.work.process);
    if (row.meaning) {
      const KernelMeaning& m = *row.meaning;
      seen += fmt::format(" {} step {} layer {}: {} + {} + {} bytes, {} flops", m.operation, m.step, m.layer,
                          m.declared[Cause::kWeights], m.declared[Cause::kKvRead], m.declared[Cause::kScores], m.flops);
    }
    seen += "\n";
  });
  CHECK(seen ==
        "gemm 1000..1400 p42 qkv step 0 layer 0: 800 + 0 + 0 bytes, 1600 flops\n"
        "attention 1500..1700 p42 attention step 0 layer 0: 0 + 300 + 100 bytes, 0 flops\n"
        "copy device to host 1800..1900 p42\n"
        "gemm 2000..2300 p42 qkv step 0 layer 0: 800 + 0 + 0 bytes, 1600 flops\n"
        "attention 2300..2600 p42 attention step 1 layer 0: 0 + 450 + 150 bytes, 0 flops\n");
  std::vector<double> values;
  reader.for_each_counter([&](const CounterRecord& c) { values.push_back(c.value); });
  CHECK(values == std::vector<double>{1200, 71.5});
}

TEST_CASE("A counter of a launch is read with its operator, and those of a trace from before there were such without") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  {
    TraceWriter writer(trace, profile_manifest());
    writer.profile().add(CounterRecord{2, 1, 0, 0, "dram__bytes_read.sum", 7.5, 3, "qkv", 8});
    writer.profile().add(CounterRecord{2, 1, 0, 0, "dram__bytes_read.sum", 2.5, -1, "head", 2});
    writer.profile().add(CounterRecord{3, 1, 0, 0, "dram__bytes_read.sum", 1});
    writer.seal();
  }
  const auto seen = [&] {
    std::string all;
    KernelReader::open(trace).for_each_counter([&](const CounterRecord& c) {
      all += fmt::format("{}: {} layer {} \"{}\" {}\n", c.first_step, c.value, c.layer, c.operation, c.declared_bytes);
    });
    return all;
  };
  CHECK(seen() == "2: 7.5 layer 3 \"qkv\" 8\n2: 2.5 layer -1 \"head\" 2\n3: 1 layer -1 \"\" 0\n");
  SqliteWriter(trace / "kernels.sqlite", trace).run("ALTER TABLE kvroof_counter DROP COLUMN operator");
  CHECK(seen() == "2: 7.5 layer -1 \"\" 0\n2: 2.5 layer -1 \"\" 0\n3: 1 layer -1 \"\" 0\n");
}

// A whole run of the CUDA back end under a profiler.
static void write_profiled_trace(const fs::path& path) {
  const TraceManifest m = small_manifest();
  TraceWriter writer(path, m, 512);
  ProfileSink& profile = writer.profile();
  for (std::uint32_t step = 0; step < kSmallSteps; ++step) small_step(writer, m, step);
  add_small_profile(profile);
  for (const TraceSequence& sequence : m.sequences) writer.set_stop_reason(sequence.id, "length");
  writer.set_linear("own");
  writer.seal();
}

TEST_CASE("Steps and a profiler's records are sealed together") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "run.kvt";
  write_profiled_trace(path);
  CHECK(inspect_trace(path, true).intact);
  CHECK(TraceReader::open(path).steps().size() == kSmallSteps);
  CHECK(TraceReader::open(path).steps()[2].start_ns == 1020);
  CHECK(KernelReader::open(path).counts().kernels == 4);
  CHECK_FALSE(fs::exists(path / "kernels.sqlite.part"));
  CHECK_FALSE(fs::exists(path / "kernels.sqlite.part-journal"));
}

TEST_CASE("A repair keeps the records that reached the file before the recorder was killed") {
  constexpr std::uint32_t kTransaction = 100'000;
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "run.kvt";
  const auto record = [&](TraceManifest m, bool steps) {
    // A child that ends without a destructor, in the middle of a transaction.
    const pid_t child = fork();
    if (child == 0) {
      TraceWriter writer(path, m, 1);
      ProfileSink& profile = writer.profile();
      if (steps) small_step(writer, m, 0);
      if (steps) small_step(writer, m, 1);
      for (std::uint32_t i = 0; i < kTransaction + kTransaction / 2; ++i) {
        profile.add(kernel(1 + i, 2 + i, i, i < kTransaction ? "early" : "late"));
      }
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
  };
  SECTION("of a trace with attention") {
    record(small_manifest(), true);
    const TraceReport repaired = repair_trace(path);
    CHECK(repaired.intact);
    CHECK(TraceReader::open(path).steps().size() == repaired.intact_steps);
    CHECK(repaired.intact_steps >= 1);
  }
  SECTION("of one of a profiler's records alone") {
    record(profile_manifest(), false);
    CHECK(repair_trace(path).intact);
  }
  CHECK(KernelReader::open(path).counts().kernels == kTransaction);
  CHECK(query(path / "kernels.sqlite", "SELECT value FROM StringIds") == "early\n");
}

TEST_CASE("A recorder that was killed between its last records and the seal lost neither them nor times of steps") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "run.kvt";
  write_profiled_trace(path);
  fs::remove(path / "seal.json");
  SECTION("after the database had its name") {}
  SECTION("before it had its name") { fs::rename(path / "kernels.sqlite", path / "kernels.sqlite.part"); }
  CHECK(repair_trace(path).intact);
  CHECK(KernelReader::open(path).counts().kernels == 4);
  const TraceReader trace = TraceReader::open(path);
  CHECK(trace.steps().size() == kSmallSteps);
  CHECK(trace.steps()[2].start_ns == 1020);
  // What the manifest says of the end of the run is believed.
  CHECK(trace.manifest().linear == "own");
  CHECK(trace.manifest().host == small_manifest().host);
  CHECK_FALSE(fs::exists(path / "lost" / "manifest.json"));
}

TEST_CASE("A repair of a trace without a seal keeps the clock times of its steps, also without a profiler's records") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "run.kvt";
  write_small_trace(path);
  const auto started = TraceReader::open(path).steps()[2].start_ns;
  REQUIRE(started != 0);
  fs::remove(path / "seal.json");
  CHECK(repair_trace(path).intact);
  CHECK(TraceReader::open(path).steps()[2].start_ns == started);
}

TEST_CASE("A trace whose records are still written is not repaired, and none of them is touched") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "run.kvt";
  const TraceManifest m = small_manifest();
  TraceWriter writer(path, m, 1);
  ProfileSink& profile = writer.profile();
  small_step(writer, m, 0);
  small_step(writer, m, 1);
  add_small_profile(profile);
  CHECK_THROWS_WITH(repair_trace(path), Catch::Contains("a program still writes it"));
  CHECK(fs::exists(path / "kernels.sqlite.part"));
  for (std::uint32_t step = 2; step < kSmallSteps; ++step) small_step(writer, m, step);
  writer.seal();
  CHECK(inspect_trace(path, true).intact);
  CHECK(KernelReader::open(path).counts().kernels == 4);
}

TEST_CASE("Staged records that cannot be read are set aside by a repair, not deleted") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "run.kvt";
  write_small_trace(path);
  fs::remove(path / "seal.json");
  write_file(path / "kernels.sqlite.part", "no database");
  CHECK(repair_trace(path).intact);
  CHECK(slurp(path / "lost" / "kernels.sqlite.part") == "no database");
}
