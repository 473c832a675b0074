// A small profile whose numbers can be followed by hand, and rows of a query as text.
#pragma once

#include <sqlite3.h>

#include <filesystem>
#include <string>

#include "tests/catch.hpp"
#include "traces/kernel_records.hpp"
#include "traces/writer.hpp"

namespace kvroof::test {

// The rows that a query gives, "a|b" each, ended by newlines.
inline std::string query(const std::filesystem::path& database, const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open_v2(database.c_str(), &db, SQLITE_OPEN_READONLY, nullptr) == SQLITE_OK);
  std::string rows;
  const auto take = [](void* to, int n, char** values, char**) {
    for (int i = 0; i < n; ++i) {
      *static_cast<std::string*>(to) += std::string(i > 0 ? "|" : "") + (values[i] == nullptr ? "NULL" : values[i]);
    }
    *static_cast<std::string*>(to) += '\n';
    return 0;
  };
  INFO(sql);
  CHECK(sqlite3_exec(db, sql.c_str(), take, &rows, nullptr) == SQLITE_OK);
  sqlite3_close(db);
  return rows;
}

// A new database that SQL fills.
inline void make_database(const std::filesystem::path& path, const std::string& sql) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  char* why = nullptr;
  const int code = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &why);
  INFO(std::string(why == nullptr ? "" : why));
  sqlite3_free(why);
  REQUIRE(code == SQLITE_OK);
  sqlite3_close(db);
}

inline constexpr const char* kAttention = "_ZN6kvroof9attentionILi64EEEvPKfPf";  // void kvroof::attention<64>(…)

inline KernelRecord kernel(std::uint64_t start, std::uint64_t end, std::uint32_t correlation, std::string_view name,
                           std::uint64_t graph_node = 0) {
  KernelRecord k;
  k.work = {start, end, 0, 1, 7, correlation, graph_node, 42};
  k.mangled_name = name;
  k.grid = {132, 1, 1};
  k.block = {128, 1, 1};
  return k;
}

// Two launches of a graph of two kernels (nodes 5: gemm, 6: attention), and a copy to the host between them:
//   gemm 1000..1400, attention 1500..1700, copy 1800..1900, gemm 2000..2300, attention 2300..2600.
inline void add_small_profile(ProfileSink& to) {
  DeviceRecord device;
  device.name = "NVIDIA H200";
  device.chip = "GH100";
  device.multiprocessors = 132;
  to.add(device);
  to.add(CallRecord{800, 900, 42, 43, 10, 0, false, "cudaGraphLaunch_v10000"});
  to.add(CallRecord{1850, 1950, 42, 43, 12, 0, false, "cudaGraphLaunch_v10000"});
  to.add(CallRecord{1750, 1790, 42, 43, 11, 0, true, "cuMemcpyDtoHAsync_v2"});
  to.add(CallRecord{1, 2, 99, 100, 10, 0, false, "cudaGraphLaunch_v10000"});  // of another process
  to.add(RangeRecord{790, 1720, 42, 43, "step 0"});
  to.add(RangeRecord{1800, 2700, 42, 43, "step 1"});
  // Out of order, as profilers hand records over.
  to.add(kernel(2300, 2600, 12, kAttention, 6));
  to.add(kernel(1000, 1400, 10, "gemm", 5));
  to.add(kernel(1500, 1700, 10, kAttention, 6));
  CopyRecord copy;
  copy.work = {1800, 1900, 0, 1, 7, 11, 0, 42};
  copy.bytes = 4096;
  copy.kind = 2;
  copy.source_kind = 3;
  copy.target_kind = 2;
  to.add(copy);
  to.add(kernel(2000, 2300, 12, "gemm", 5));
  to.add(PoolRecord{650, 42, 0, 9, 1, 0, {kLocalPool, 0xe000, 0, 2 << 20, 0, 0}});
  to.add(MemoryRecord{700, 42, 0, 1, 0xf000, 1 << 20, 3, false, {kLocalPool, 0xe000, 0, 2 << 20, 1 << 20, 0},
                      0xc0de, 10, 7, "weights"});
  to.add(PoolRecord{2700, 42, 0, 13, kPoolTrimmed, 4096, {kLocalPool, 0xe000, 0, 1 << 20, 1 << 20, 0}});
  // gemm: the same bytes at each launch. Attention: more in the second, for several causes.
  to.add(OperatorRecord{5, 0, 0, 0, "qkv", "weights", 800, 1600});
  to.add(OperatorRecord{6, 10, 0, 0, "attention", "kv_read", 300, 0});
  to.add(OperatorRecord{6, 10, 0, 0, "attention", "scores", 100, 0});
  to.add(OperatorRecord{6, 12, 1, 0, "attention", "kv_read", 450, 0});
  to.add(OperatorRecord{6, 12, 1, 0, "attention", "scores", 150, 0});
  to.add(CounterRecord{0, 1, 0, 0, "dram__bytes_read.sum", 1200});
  to.add(CounterRecord{0, 0, 1600, 0, "dram__throughput.avg.pct_of_peak_sustained_elapsed", 71.5});
  to.note("level", "trace");
}

inline TraceManifest profile_manifest() {
  TraceManifest m;
  m.tool_version = "0.0-test";
  m.source = "profile";
  return m;
}

inline void write_profile_trace(const std::filesystem::path& path) {
  TraceWriter writer(path, profile_manifest());
  add_small_profile(writer.profile());
  writer.seal();
}

}  // namespace kvroof::test
