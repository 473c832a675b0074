// Profiles as other versions of their tools write them.
#include "tests/support/profile.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/import_profile.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

TEST_CASE("Work of PyTorch's profiler is on the device and stream of its row where arguments do not say another") {
  const TemporaryFolder folder;
  write_file(folder.file("a.json"), R"json({"traceEvents": [
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 3, "tid": "stream 9", "ts": 1, "dur": 1, "args": {}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 3, "tid": 9, "ts": 2, "dur": 1,
     "args": {"device": 0, "stream": 7}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)", "pid": 1, "tid": 20, "ts": 3, "dur": 1,
     "args": {"fromDevice": 0, "inDevice": 1, "toDevice": 2, "fromContext": 1, "inContext": 2, "toContext": 3,
              "bytes": 8}}]})json");
  import_profile(folder.file("a.json"), "kineto", read_kineto, folder.path() / "a.kvt", "0", "");
  const fs::path db = folder.path() / "a.kvt/kernels.sqlite";
  CHECK(query(db, "SELECT deviceId, streamId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start") == "3|9\n0|7\n");
  CHECK(query(db, "SELECT deviceId, contextId, streamId FROM CUPTI_ACTIVITY_KIND_MEMCPY") == "1|2|20\n");
}

TEST_CASE("A profile of PyTorch before 1.12, whose categories have other names, is imported") {
  const TemporaryFolder folder;
  write_file(folder.file("a.json"), R"json({"traceEvents": [
    {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 1, "tid": "12", "ts": 1, "dur": 3,
     "args": {"External id": 3, "Input dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}},
    {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": "12", "ts": 2, "dur": 1,
     "args": {"correlation": 9, "external id": 3}},
    {"ph": "X", "cat": "Kernel", "name": "volta_sgemm", "pid": 0, "tid": "stream 7", "ts": 5, "dur": 2,
     "args": {"device": 0, "context": 1, "stream": 7, "correlation": 9, "external id": 3}},
    {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "pid": 0, "tid": "stream 7", "ts": 7, "dur": 1,
     "args": {"device": 0, "stream": 7, "bytes": 64}},
    {"ph": "X", "cat": "Memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": "stream 7", "ts": 8,
     "dur": 1, "args": {"device": 0, "stream": 7, "bytes": 32}}]})json");
  const ProfileCounts counts =
      import_profile(folder.file("a.json"), "kineto", read_kineto, folder.path() / "a.kvt", "0", "");
  CHECK((counts.kernels == 1 && counts.calls == 1 && counts.fills == 1 && counts.copies == 1 && counts.others == 1));
  const fs::path db = folder.path() / "a.kvt/kernels.sqlite";
  CHECK(query(db, "SELECT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME") == "12\n");
  CHECK(query(db, "SELECT name, declared_bytes FROM kvroof_operator") ==
        "aten::mm 4x8 8x2|224\n");  // (32 + 16 + 8) · 4
}

TEST_CASE("The GPU of an export of early 2021 is known") {
  const TemporaryFolder folder;
  make_database(folder.path() / "old.sqlite", R"sql(
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (3, 'gemm');
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 3);
    CREATE TABLE TARGET_INFO_CUDA_GPU (deviceId INTEGER, name TEXT, totalMemory INTEGER, numMultiprocessors INTEGER,
      computeCapabilityMajor INTEGER, computeCapabilityMinor INTEGER);
    INSERT INTO TARGET_INFO_CUDA_GPU VALUES (0, 'A100-SXM4-40GB', 42505273344, 108, 8, 0);)sql");
  import_profile(folder.path() / "old.sqlite", "nsys", read_nsys, folder.path() / "a.kvt", "0", "");
  CHECK(query(folder.path() / "a.kvt/kernels.sqlite",
              "SELECT id, name, totalMemory, smCount, computeMajor, computeMinor FROM TARGET_INFO_GPU") ==
        "0|A100-SXM4-40GB|42505273344|108|8|0\n");
}

TEST_CASE("Kernels of an export keep the mangled name beside the demangled one, as joins on either ask") {
  const TemporaryFolder folder;
  // The demangled name is the file's own, which spells it otherwise than we would.
  make_database(folder.path() / "a.sqlite", R"sql(
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (1, '_ZN2ns7softmaxIfEEvPT_'), (2, 'softmax'), (3, 'void ns::softmax<float>(T1 *)'),
      (4, 'gemm');
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER, shortName INTEGER,
      mangledName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 3, 2, 1), (3, 4, 4, 4, NULL), (5, 6, NULL, NULL, 1),
      (7, 8, NULL, 4, NULL);)sql");
  import_profile(folder.path() / "a.sqlite", "nsys", read_nsys, folder.path() / "a.kvt", "0", "");
  CHECK(query(folder.path() / "a.kvt/kernels.sqlite",
              "SELECT m.value, s.value, d.value FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds m ON m.id = mangledName "
              "JOIN StringIds s ON s.id = shortName JOIN StringIds d ON d.id = demangledName ORDER BY start") ==
        "_ZN2ns7softmaxIfEEvPT_|softmax|void ns::softmax<float>(T1 *)\ngemm|gemm|gemm\n"
        "_ZN2ns7softmaxIfEEvPT_|softmax|void ns::softmax<float>(T1 *)\ngemm|gemm|gemm\n");
}

TEST_CASE("Records of an export whose times are text, or so large that they are none, are left out, counted and told") {
  const TemporaryFolder folder;
  make_database(folder.path() / "a.sqlite", R"sql(
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000');
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 250, 1), ('abc', 600, 1), (300, 'abc', 1),
      (300, 9223372036854775807, 1), (300, 40000000000000000, 1);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ('soon', 60, 1, 2), (50, 60, 1, 2);
    CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER);
    INSERT INTO NVTX_EVENTS VALUES (-5, 9223372036854775807, 59, 'far', 1), (60, NULL, 59, 'open', 1);
    CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, address INTEGER, bytes INTEGER);
    INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES ('abc', 1, 2);)sql");
  const fs::path out = folder.path() / "run.kvt";
  const ProfileCounts counts = import_profile(folder.path() / "a.sqlite", "nsys", read_nsys, out, "0", "");
  CHECK((counts.kernels == 1 && counts.calls == 1 && counts.ranges == 1));
  CHECK(counts.left_out.text() == "7 records without a time");
  CHECK(query(out / "kernels.sqlite", "SELECT start, end, text FROM NVTX_EVENTS") == "60|250|open\n");
}
