#include "traces/import_profile.hpp"

#include <zlib.h>

#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/kernel_reader.hpp"
#include "traces/kineto_event.hpp"
#include "traces/sqlite.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

// Few tables and columns, in another order than ours: what an early version wrote.
const std::string kOldExport = R"sql(
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO StringIds VALUES (3, 'void ns::softmax<float>(float*)'), (4, 'softmax'), (9, 'cudaLaunchKernel_v7000');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (streamId INTEGER, start INTEGER, end INTEGER, demangledName INTEGER,
  correlationId INTEGER, globalPid INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (7, 100, 250, 3, 1, 704643072), (7, 300, 350, 3, 2, 704643072);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
  nameId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (50, 60, 704643115, 1, 9);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
INSERT INTO NVTX_EVENTS VALUES (40, 400, 59, NULL, 4, 704643115), (45, NULL, 34, 'mark', NULL, 704643115),
  (0, NULL, 75, 'a thread', NULL, 1);
)sql";

const std::string kKineto = R"json({
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150754820096, "computeMajor": 9,
                        "computeMinor": 0, "numSms": 132, "extra": [1, {"name": "inner"}]}],
  "distributedInfo": {"backend": "nccl", "rank": 0},
  "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 11, "tid": 12, "ts": 1.0, "dur": 9.0},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "pid": 11, "tid": 12, "ts": 0.5, "dur": 100},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 11, "tid": 12, "ts": 2.250, "dur": 1.001,
     "args": {"External id": 5, "cbid": 211, "correlation": 77}},
    {"ph": "X", "cat": "kernel", "name": "void ns::softmax<float>(float*)", "pid": 0, "tid": 7,
     "ts": 1757000000000123.456, "dur": 2.500,
     "args": {"device": 0, "context": 1, "stream": 7, "correlation": 77, "grid": [132, 2, 1], "block": [64, 1, 1],
              "registers per thread": 40, "est. achieved occupancy %": 12.5, "graph node id": 4294967297}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pinned)", "pid": 0, "tid": 7,
     "ts": 1757000000000130, "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 78, "bytes": 4096}},
    {"ph": "s", "id": 77, "cat": "ac2g", "name": "ac2g", "pid": 11, "tid": 12, "ts": 2.250},
    {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 1757000000000140.000, "dur": 1,
     "pid": 0, "tid": "stream 7", "args": {"bytes": 64, "stream": 7}},
    {"name": ""}
  ],
  "traceName": "trace.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1727000000000000000
})json";

std::string refusal(const fs::path& file, ReadProfile read) {
  const TemporaryFolder folder;
  const fs::path out = folder.path() / "out.kvt";
  try {
    import_profile(file, "test", read, out, "0", "");
  } catch (const Error& e) {
    CHECK_FALSE(fs::exists(out));
    const std::string why = e.what();
    CHECK(why.find('\n') == std::string::npos);
    CHECK(why.starts_with(file.string() + ": "));
    return why.substr(file.string().size() + 2);
  }
  FAIL("it was taken");
  return "";
}

}  // namespace

TEST_CASE("An export of Nsight Systems with few tables and columns is imported") {
  const TemporaryFolder folder;
  make_database(folder.path() / "old.sqlite", kOldExport);
  const fs::path out = folder.path() / "run.kvt";
  const ProfileCounts counts = import_profile(folder.path() / "old.sqlite", "nsys", read_nsys, out, "0", "");
  CHECK(counts.kernels == 2);
  CHECK(counts.calls == 1);
  CHECK(counts.ranges == 2);
  CHECK(counts.others == 1);
  CHECK(inspect_trace(out, true).intact);
  const fs::path db = out / "kernels.sqlite";
  CHECK(query(db, "SELECT start, end, streamId, correlationId, globalPid / 16777216, d.value, s.value, gridX FROM "
                  "CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds d ON d.id = demangledName JOIN StringIds s ON s.id = "
                  "shortName ORDER BY 1") ==
        "100|250|7|1|42|void ns::softmax<float>(float*)|softmax|0\n"
        "300|350|7|2|42|void ns::softmax<float>(float*)|softmax|0\n");
  CHECK(query(db, "SELECT k.start, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON "
                  "r.correlationId = k.correlationId AND r.globalTid / 16777216 = k.globalPid / 16777216") ==
        "100|50\n");
  CHECK(query(db, "SELECT start, end, text FROM NVTX_EVENTS ORDER BY 1") == "40|400|softmax\n45|NULL|mark\n");
  CHECK(query(db, "SELECT value FROM kvroof_note WHERE key = 'imported_from'") == "nsys\n");
}

TEST_CASE("Ranges that were pushed and popped stay told apart from those with an id, as Nsight's sums of ranges ask") {
  const TemporaryFolder folder;
  make_database(folder.path() / "old.sqlite", kOldExport + R"sql(
INSERT INTO NVTX_EVENTS VALUES (50, 90, 60, 'request 7', NULL, 704643115);)sql");
  const fs::path out = folder.path() / "run.kvt";
  CHECK(import_profile(folder.path() / "old.sqlite", "nsys", read_nsys, out, "0", "").ranges == 3);
  CHECK(query(out / "kernels.sqlite", "SELECT text FROM NVTX_EVENTS WHERE eventType = 59") == "softmax\n");
  CHECK(query(out / "kernels.sqlite", "SELECT text FROM NVTX_EVENTS WHERE eventType = 60") == "request 7\n");
  CHECK(query(out / "kernels.sqlite", "SELECT text FROM NVTX_EVENTS WHERE eventType = 34") == "mark\n");
}

TEST_CASE("What began before the recording of an export is left out and counted, a range that reaches into it is cut") {
  const TemporaryFolder folder;
  make_database(folder.path() / "old.sqlite", kOldExport + R"sql(
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (7, -50, 20, 3, 3, 704643072);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (-9, -5, 704643115, 3, 9);
INSERT INTO NVTX_EVENTS VALUES (-90, -80, 59, 'init', NULL, 704643115), (-70, NULL, 34, 'early', NULL, 704643115),
  (-60, 30, 59, 'load', NULL, 704643115);)sql");
  const fs::path out = folder.path() / "run.kvt";
  const ProfileCounts counts = import_profile(folder.path() / "old.sqlite", "nsys", read_nsys, out, "0", "");
  CHECK((counts.kernels == 2 && counts.calls == 1 && counts.ranges == 3 && counts.others == 1));
  CHECK(counts.left_out.before == 4);
  CHECK(query(out / "kernels.sqlite", "SELECT start, end, text FROM NVTX_EVENTS ORDER BY 1") ==
        "0|30|load\n40|400|softmax\n45|NULL|mark\n");
  CHECK(query(out / "kernels.sqlite", "SELECT value FROM kvroof_note WHERE key = 'left_out'") ==
        "4 records that began before the recording\n");
}

TEST_CASE("A range of an export that is open when the recording ends lasts to its last time, and a mark has no end") {
  const TemporaryFolder folder;
  make_database(folder.path() / "old.sqlite", kOldExport + R"sql(
INSERT INTO NVTX_EVENTS VALUES (60, NULL, 59, 'serve', NULL, 704643115), (-5, NULL, 60, 'request', NULL, 704643115);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (7, 380, 420, 3, 3, 704643072);)sql");
  const fs::path out = folder.path() / "run.kvt";
  CHECK(import_profile(folder.path() / "old.sqlite", "nsys", read_nsys, out, "0", "").ranges == 4);
  CHECK(query(out / "kernels.sqlite", "SELECT start, end, eventType, text FROM NVTX_EVENTS ORDER BY 1") ==
        "0|420|60|request\n40|400|59|softmax\n45|NULL|34|mark\n60|420|59|serve\n");
}

TEST_CASE("Records of an export without a name or that end before they start are left out, counted and told") {
  const TemporaryFolder folder;
  make_database(folder.path() / "old.sqlite", kOldExport + R"sql(
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (7, 500, 600, NULL, 4, 704643072), (7, 600, 700, 1234, 5, 704643072),
  (7, 900, 899, 3, 6, 704643072), (7, -5, -6, 3, 7, 704643072);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (70, 60, 704643115, 4, 9);)sql");
  const fs::path out = folder.path() / "run.kvt";
  const ProfileCounts counts = import_profile(folder.path() / "old.sqlite", "nsys", read_nsys, out, "0", "");
  CHECK((counts.kernels == 2 && counts.calls == 1));
  CHECK(counts.left_out.text() == "3 records that end before they start, 2 kernels without a name");
  CHECK(query(out / "kernels.sqlite", "SELECT count(*), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL") == "2|350\n");
  CHECK(query(out / "kernels.sqlite", "SELECT value FROM kvroof_note WHERE key = 'left_out'") ==
        "3 records that end before they start, 2 kernels without a name\n");
}

TEST_CASE("Events of tables of an export that are not read are counted, whatever their table is") {
  const TemporaryFolder folder;
  const std::string file = folder.file("report.sqlite");
  make_database(file, kOldExport + R"sql(
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, syncType INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (1, 2, 1), (3, 4, 1);
CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER);
INSERT INTO GPU_METRICS VALUES (1, 1, 1, 50);
CREATE TABLE ThreadNames (nameId INTEGER, globalTid INTEGER);
INSERT INTO ThreadNames VALUES (3, 1);
CREATE VIEW other AS SELECT 1 AS start;
)sql");
  const ProfileCounts n = import_profile(file, "nsys", read_nsys, folder.path() / "run.kvt", "0", "");
  CHECK(n.others == 1 + 2 + 1);  // the name of a thread among the ranges is no range
}

TEST_CASE("Events of PyTorch's profiler with times that cannot be are left out, counted and told") {
  const TemporaryFolder folder;
  const auto event = [](const char* category, const char* name, const std::string& times) {
    return fmt::format(R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 0, "tid": 7{}}},)", category, name, times);
  };
  const std::string file = folder.file("trace.json");
  write_file(file, R"({"traceEvents": [)" + event("kernel", "good", R"(, "ts": 5, "dur": 2)") +
                       event("kernel", "early", R"(, "ts": -5.5, "dur": 2)") +
                       event("cuda_runtime", "call", R"(, "ts": -0.001, "dur": 9)") +
                       event("kernel", "backwards", R"(, "ts": 5, "dur": -0.001)") +
                       event("gpu_memcpy", "Memcpy DtoH", "") + event("gpu_memset", "Memset", R"(, "ts": 1e300)") +
                       event("kernel", "", R"(, "ts": 8, "dur": 2)") +
                       event("user_annotation", "load", R"(, "ts": -3, "dur": 4)") +
                       event("user_annotation", "init", R"(, "ts": -3, "dur": 2)") + "{}]}");
  const fs::path out = folder.path() / "run.kvt";
  const ProfileCounts counts = import_profile(file, "kineto", read_kineto, out, "0", "");
  CHECK((counts.kernels == 1 && counts.copies == 0 && counts.fills == 0 && counts.calls == 0 && counts.ranges == 1));
  CHECK(counts.left_out.text() == "3 records that began before the recording, 1 record that ends before it starts, "
                                  "2 records without a time, 1 kernel without a name");
  CHECK(query(out / "kernels.sqlite", "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL") == "5000|7000\n");
  CHECK(query(out / "kernels.sqlite", "SELECT start, end, text FROM NVTX_EVENTS") == "0|1000|load\n");
}

TEST_CASE("Launches of whole CUDA graphs, nsys' default, are records beside the kernels outside, or alone") {
  const TemporaryFolder folder;
  const std::string graphs =
      "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
      "greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, "
      "graphExecId INTEGER); INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES "
      "(400, 900, 0, 1, NULL, 7, 5, 704643072, 12, 13), (1000, 1600, 0, 1, NULL, 7, 6, 704643072, NULL, 13);";
  make_database(folder.path() / "both.sqlite", kOldExport + graphs);
  make_database(folder.path() / "alone.sqlite", graphs);
  for (const auto& [name, kernels] : {std::pair<std::string, std::uint64_t>{"both", 4}, {"alone", 2}}) {
    const fs::path out = folder.path() / (name + ".kvt");
    const ProfileCounts counts = import_profile(folder.path() / (name + ".sqlite"), "nsys", read_nsys, out, "0", "");
    CHECK((counts.kernels == kernels && counts.whole_graphs == 2));
    CHECK(query(out / "kernels.sqlite", "SELECT start, end, value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds s ON "
                                        "s.id = shortName WHERE start >= 400 ORDER BY 1") ==
          "400|900|CUDA graph 12\n1000|1600|CUDA graph 13\n");
    CHECK(query(out / "kernels.sqlite", "SELECT value LIKE '2 launches of CUDA graphs are a record each; %' FROM "
                                        "kvroof_note WHERE key = 'whole_graphs'") == "1\n");
  }
}

TEST_CASE("Memory pools of an export, and which of them allocations come from, are imported") {
  const TemporaryFolder folder;
  make_database(folder.path() / "pools.sqlite", kOldExport + R"sql(
CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, globalPid INTEGER, bytes INTEGER, memKind INTEGER,
  memoryOperationType INTEGER, localMemoryPoolAddress INTEGER, localMemoryPoolReleaseThreshold INTEGER,
  localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER, importedMemoryPoolAddress INTEGER,
  importedMemoryPoolProcessId INTEGER, pc INTEGER, correlationId INTEGER, streamId INTEGER, name TEXT);
INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES
  (20, 704643072, 512, 2, 0, 4096, 100, 2000, 1500, NULL, NULL, 49374, 8, 0, 'weights'),
  (30, 704643072, 512, 2, 0, NULL, NULL, NULL, NULL, 8192, 99, 0, NULL, NULL, NULL),
  (40, 704643072, 512, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL);
CREATE TABLE CUDA_GPU_MEMORY_POOL_EVENTS (start INTEGER, globalPid INTEGER, deviceId INTEGER, address INTEGER,
  operationType INTEGER, poolType INTEGER, correlationId INTEGER, minBytesToKeep INTEGER,
  localMemoryPoolReleaseThreshold INTEGER, localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER);
INSERT INTO CUDA_GPU_MEMORY_POOL_EVENTS VALUES (-5, 704643072, 1, 4096, 1, 1, 6, NULL, 100, 2000, 0),
  (50, 704643072, 1, 4096, 3, 1, 7, 64, 100, 1600, 1500), (60, 704643072, 1, 8192, 2, 2, 8, NULL, NULL, NULL, NULL);
)sql");
  const fs::path out = folder.path() / "run.kvt";
  import_profile(folder.path() / "pools.sqlite", "nsys", read_nsys, out, "0", "");
  const fs::path db = out / "kernels.sqlite";
  CHECK(query(db, "SELECT start, memKind, memoryOperationType, localMemoryPoolAddress, "
                  "localMemoryPoolReleaseThreshold, localMemoryPoolSize, localMemoryPoolUtilizedSize, "
                  "importedMemoryPoolAddress, importedMemoryPoolProcessId FROM CUDA_GPU_MEMORY_USAGE_EVENTS "
                  "ORDER BY 1") == "20|2|0|4096|100|2000|1500|NULL|NULL\n30|2|0|NULL|NULL|NULL|NULL|8192|99\n"
                                   "40|2|1|NULL|NULL|NULL|NULL|NULL|NULL\n");
  CHECK(query(db, "SELECT pc, correlationId, streamId, name FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY start") ==
        "49374|8|0|weights\n0|NULL|NULL|NULL\n0|NULL|NULL|NULL\n");
  // A pool that was there before the recording is there from its start.
  CHECK(query(db, "SELECT start, globalPid, deviceId, address, operationType, poolType, correlationId, minBytesToKeep, "
                  "localMemoryPoolReleaseThreshold, localMemoryPoolSize, localMemoryPoolUtilizedSize FROM "
                  "CUDA_GPU_MEMORY_POOL_EVENTS ORDER BY 1") ==
        "0|704643072|1|4096|1|1|6|NULL|100|2000|0\n50|704643072|1|4096|3|1|7|64|100|1600|1500\n"
        "60|704643072|1|8192|2|2|8|NULL|NULL|NULL|NULL\n");
}

TEST_CASE("kernels.sqlite of a trace is imported again as it is") {
  const TemporaryFolder folder;
  write_profile_trace(folder.path() / "a.kvt");
  import_profile(folder.path() / "a.kvt/kernels.sqlite", "nsys", read_nsys, folder.path() / "b.kvt", "0", "");
  for (const std::string table : {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS",
                                  "CUDA_GPU_MEMORY_USAGE_EVENTS", "CUDA_GPU_MEMORY_POOL_EVENTS", "TARGET_INFO_GPU"}) {
    const auto of = [&](const char* trace) {
      const bool calls = table == "CUPTI_ACTIVITY_KIND_RUNTIME";
      return query(folder.path() / trace / "kernels.sqlite",
                   calls ? "SELECT start, end, eventClass, globalTid, correlationId, value FROM " + table +
                               " JOIN StringIds ON id = nameId ORDER BY start"
                         : "SELECT * FROM " + table);
    };
    INFO(table);
    CHECK(of("a.kvt") == of("b.kvt"));
  }
  CHECK(KernelReader::open(folder.path() / "b.kvt").counts().kernels == 4);
}

TEST_CASE("GPUs that processes number for themselves keep apart, or together, also when they are imported again") {
  const TemporaryFolder folder;
  TraceManifest manifest;
  manifest.source = "profile";
  {
    TraceWriter writer(folder.path() / "a.kvt", manifest);
    ProfileSink& sink = writer.profile();
    const auto add = [&](std::uint32_t process, std::uint32_t device, std::string_view uuid) {
      DeviceRecord record;
      record.device = device;
      record.process = process;
      record.uuid = uuid;
      record.name = "NVIDIA H200";
      sink.add(record);
      sink.add(record);  // CUPTI may say it again
    };
    sink.add(ProcessRecord{7, "server"});
    sink.add(ProcessRecord{8, "worker"});
    add(7, 0, "GPU-a");
    add(7, 1, "GPU-b");
    add(8, 0, "GPU-b");  // CUDA_VISIBLE_DEVICES=1
    add(9, 0, "GPU-c");
    sink.add(kernel(10, 20, 1, kAttention));
    writer.seal();
  }
  import_profile(folder.path() / "a.kvt/kernels.sqlite", "nsys", read_nsys, folder.path() / "b.kvt", "0", "");
  for (const char* trace : {"a.kvt", "b.kvt"}) {
    const fs::path db = folder.path() / trace / "kernels.sqlite";
    INFO(trace);
    CHECK(query(db, "SELECT id, uuid FROM TARGET_INFO_GPU ORDER BY 1") == "0|GPU-a\n1|GPU-b\n2|GPU-c\n");
    CHECK(query(db, "SELECT pid, cudaId, gpuId, uuid FROM TARGET_INFO_CUDA_DEVICE ORDER BY 1, 2") ==
          "7|0|0|GPU-a\n7|1|1|GPU-b\n8|0|1|GPU-b\n9|0|2|GPU-c\n");
    CHECK(query(db, "SELECT globalPid / 0x1000000, pid, name FROM PROCESSES ORDER BY 1") ==
          "7|7|server\n8|8|worker\n");
  }
}

TEST_CASE("A trace of PyTorch's profiler is imported to the nanosecond, compressed or not") {
  const TemporaryFolder folder;
  const std::string plain = folder.file("trace.json"), packed = folder.file("trace.json.gz");
  write_file(plain, kKineto);
  const gzFile gz = gzopen(packed.c_str(), "wb");
  gzwrite(gz, kKineto.data(), static_cast<unsigned>(kKineto.size()));
  gzclose(gz);
  for (const std::string& file : {plain, packed}) {
    const fs::path out = file + ".kvt";
    const ProfileCounts counts = import_profile(file, "kineto", read_kineto, out, "0", "");
    CHECK(counts.kernels == 1);
    CHECK(counts.others == 1);
    const fs::path db = out / "kernels.sqlite";
    CHECK(query(db, "SELECT start, end, streamId, correlationId, gridX, gridY, blockX, registersPerThread, "
                    "graphNodeId, value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName") ==
          "1757000000000123456|1757000000000125956|7|77|132|2|64|40|4294967297|softmax\n");
    CHECK(query(db, "SELECT start, end, value FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId") ==
          "2250|3251|cudaLaunchKernel\n");
    CHECK(query(db, "SELECT bytes, copyKind, srcKind, dstKind FROM CUPTI_ACTIVITY_KIND_MEMCPY") == "4096|2|2|1\n");
    CHECK(query(db, "SELECT bytes FROM CUPTI_ACTIVITY_KIND_MEMSET") == "64\n");
    CHECK(query(db, "SELECT start, end, text FROM NVTX_EVENTS") == "500|100500|ProfilerStep#3\n");
    CHECK(query(db, "SELECT name, totalMemory, smCount, computeMajor FROM TARGET_INFO_GPU") ==
          "NVIDIA H200|150754820096|132|9\n");
  }
}

TEST_CASE("A table that shows more rows than its file has room for is a damaged one") {
  const TemporaryFolder folder;
  make_database(folder.path() / "old.sqlite", kOldExport);
  const SqliteReader db = SqliteReader::open(folder.path() / "old.sqlite").or_throw("old");
  SqliteRows rows = SqliteRows::select(db, "SELECT id FROM StringIds", 2).or_throw("rows");
  CHECK(rows.next());
  CHECK(rows.next());
  CHECK_FALSE(rows.problem());
  CHECK_FALSE(rows.next());
  CHECK(rows.problem()->message.find("more rows than the file has room for") != std::string::npos);
}

TEST_CASE("A time in microseconds is read without rounding") {
  CHECK(KinetoNumber{"1757000000000123.456"}.nanoseconds() == 1757000000000123456);
  CHECK(KinetoNumber{"5"}.nanoseconds() == 5000);
  CHECK(KinetoNumber{"0.5"}.nanoseconds() == 500);
  CHECK(KinetoNumber{"-1.25"}.nanoseconds() == -1250);
  CHECK(KinetoNumber{"-0.25"}.nanoseconds() == -250);
  CHECK(KinetoNumber{"1.5e3"}.nanoseconds() == 1500000);
  CHECK_FALSE(KinetoNumber{"1e300"}.nanoseconds());
  CHECK_FALSE(KinetoNumber{"9223372036854775807"}.nanoseconds());
}

TEST_CASE("A profile that cannot be right is refused in one sentence, and leaves nothing") {
  const TemporaryFolder folder;
  const std::string file = folder.file("profile");
  const auto nsys = [&](const std::string& sql) {
    fs::remove(file);
    make_database(file, sql);
    return refusal(file, read_nsys);
  };
  const auto kineto = [&](const std::string& text) {
    write_file(file, text);
    return refusal(file, read_kineto);
  };
  write_file(file, "{}");
  CHECK(refusal(file, read_nsys).starts_with("it is no SQLite file"));
  CHECK(nsys("CREATE TABLE t (x)").starts_with("it has no table CUPTI_ACTIVITY_KIND_KERNEL"));
  CHECK(nsys("CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (x)") ==
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE has no column start");
  CHECK(nsys("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start, 2 AS end").starts_with("it has no table"));
  CHECK(nsys("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, shortName)") ==
        "CUPTI_ACTIVITY_KIND_KERNEL has no column end");
  CHECK(nsys(kOldExport + "DELETE FROM StringIds") ==
        "no kernel in it can be used: 2 kernels without a name");
  CHECK(nsys(kOldExport + "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL") ==
        "its table of kernels is empty: no kernel ran under nsys");

  CHECK(kineto(kKineto.substr(0, 900)) == "the JSON breaks off at byte 900: the file was cut");
  CHECK(kineto("") == "the JSON breaks off at byte 0: the file was cut");
  CHECK(kineto("[]") == "it is no JSON object");
  CHECK(kineto("{}") == "it has no traceEvents: no trace of PyTorch's profiler");
  CHECK(kineto(R"({"traceEvents": [{"ph": "X", "cat": "cpu_op"}]})") ==
        "none of its 1 events is a kernel; record with ProfilerActivity.CUDA");
  CHECK(kineto(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": -1}]})") ==
        "no kernel in it can be used: 1 record that ends before it starts");
  CHECK(kineto(R"({"traceEvents": [{}, {"ph": "X", "cat": "kernel", "name": "k"}]})") ==
        "no kernel in it can be used: 1 record without a time");
  const std::string quote = kineto(R"({"traceEvents": [{"name": "a "b""}]})");
  CHECK(quote.starts_with("byte 31 of the JSON: `"));
  CHECK(quote.find("b` may not stand there; where it is of the name of a Python function, record without "
                   "with_stack=True") != std::string::npos);
  CHECK(kineto("SQLite format 3") == "byte 1 of the JSON: `S` may not stand there");
  CHECK(kineto("{\"a\": " + std::string(100, '[')) == "its values are nested deeper than 64");
  CHECK(kineto("{\"a\": \"" + std::string(17 << 20, 'x') + "\"}").find("is longer than 16 MiB") !=
        std::string::npos);
}
