// Reads the SQLite export of Nsight Systems. Its tables are made lazily and their columns grow from version to version.
#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <unordered_map>
#include <vector>

#include "sim/core/files.hpp"
#include "traces/import_profile.hpp"
#include "traces/kernel_names.hpp"
#include "traces/kernel_tables.hpp"
#include "traces/sqlite.hpp"

namespace kvroof {
namespace {

constexpr std::string_view kMagic = "SQLite format 3";
constexpr std::uint64_t kLeastRow = 4;  // bytes that any row takes in a file
constexpr std::string_view kEarlyDeviceTable = "TARGET_INFO_CUDA_GPU";  // until the first half of 2021
constexpr std::string_view kGraphTable = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
constexpr std::array kTaken = {kKernelTable, kGraphTable, kCopyTable, kFillTable,
                               kCallTable,   kRangeTable, kMemoryTable, kPoolTable};
constexpr std::int64_t kMostNs = std::int64_t{1} << 62, kYearNs = 365 * 86'400 * std::int64_t{1'000'000'000};

using Columns = std::vector<std::string_view>;

class NsysReader {
 public:
  NsysReader(const SqliteReader& db, std::uint64_t file_bytes, ProfileSink& to)
      : db_(db), most_rows_(file_bytes / kLeastRow), to_(to) {}

  Result<ProfileCounts> run() {
    read_strings();
    read_version();
    read_processes();
    read_devices();
    read_kernels();
    read_graphs();
    read_copies();
    read_fills();
    read_calls();
    read_ranges();
    read_memory();
    read_pools();
    if (problem_) return *problem_;
    count_others();
    if (counts_.whole_graphs > 0) {
      to_.note("whole_graphs",
               fmt::format("{} launches of CUDA graphs are a record each; `nsys profile --cuda-graph-trace=node` "
                           "records their kernels",
                           counts_.whole_graphs));
    }
    if (counts_.kernels == 0 && counts_.left_out.total() > 0) {
      return failure("no kernel in it can be used: {}", counts_.left_out.text());
    }
    if (counts_.kernels == 0) return failure("its table of kernels is empty: no kernel ran under nsys");
    return counts_;
  }

 private:
  // The columns of a table in this order, NULL where the file's table lacks one.
  template <class Visit>
  void select(std::string_view table, const Columns& columns, Visit&& visit) {
    if (problem_ || !db_.has_table(table)) return;
    std::string list;
    for (const std::string_view column : columns) {
      list += list.empty() ? "" : ", ";
      list += db_.has_column(table, column) ? column : "NULL";
    }
    auto rows = SqliteRows::select(db_, fmt::format("SELECT {} FROM {}", list, table), most_rows_);
    if (!rows) {
      problem_ = failure("{}: {}", table, rows.error());
      return;
    }
    while (rows.value().next()) visit(rows.value());
    if (rows.value().problem()) problem_ = failure("{}: {}", table, rows.value().problem()->message);
  }

  static std::uint32_t process(const SqliteRows& rows, int c) { return process_of(rows.u64(c)); }
  static std::uint32_t thread(const SqliteRows& rows, int c) { return thread_of(rows.u64(c)); }
  // The export counts kinds of memory from 0, CUPTI from 1; 0 is then unknown.
  static std::uint32_t memory_kind(const SqliteRows& rows, int c) {
    const std::int64_t kind = rows.integer(c);
    return rows.null(c) || kind < 0 || kind > 6 ? 0 : static_cast<std::uint32_t>(kind) + 1;
  }

  // A text is no time, nor is what lies so far off that its sums would not fit.
  static bool is_time(const SqliteRows& rows, int c) {
    if (rows.type(c) != SQLITE_INTEGER && rows.type(c) != SQLITE_FLOAT) return false;
    return rows.integer(c) > -kMostNs && rows.integer(c) < kMostNs;
  }
  // Columns 0 and 1 are a start, and an end if there is one: nothing lasts as long as a year.
  static bool is_timed(const SqliteRows& rows) {
    if (!is_time(rows, 0)) return false;
    return rows.null(1) || (is_time(rows, 1) && rows.integer(1) - rows.integer(0) < kYearNs);
  }

  // Columns 0 and 1 are start and end (a mark has none). Times count from the recording's start: what began before it,
  // such as ranges while a framework started, has no place on its clock, and is counted.
  bool has_times(const SqliteRows& rows, bool mark = false) {
    if (!is_timed(rows)) {
      ++counts_.left_out.timeless;
      return false;
    }
    const std::int64_t start = rows.integer(0), end = rows.integer(1);
    const bool backwards = !mark && end < start;
    if (start >= 0 && !backwards) {
      last_ns_ = std::max({last_ns_, start, end});
      return true;
    }
    ++(backwards ? counts_.left_out.backwards : counts_.left_out.before);
    return false;
  }
  // Columns 0 to 7.
  static constexpr std::array<std::string_view, 8> kWork = {"start",    "end",           "deviceId",  "contextId",
                                                            "streamId", "correlationId", "globalPid", "graphNodeId"};
  static Columns work_and(const Columns& more) {
    Columns columns(kWork.begin(), kWork.end());
    columns.insert(columns.end(), more.begin(), more.end());
    return columns;
  }
  static DeviceWork work(const SqliteRows& rows) {
    return {rows.u64(0), rows.u64(1), rows.u32(2), rows.u32(3), rows.u32(4), rows.u32(5), rows.u64(7),
            process(rows, 6)};
  }
  // The text itself, or its id.
  [[nodiscard]] std::string_view string(const SqliteRows& rows, int c) const {
    if (rows.type(c) == SQLITE_TEXT) return rows.text(c);
    const auto it = rows.null(c) ? strings_.end() : strings_.find(rows.integer(c));
    return it == strings_.end() ? std::string_view{} : std::string_view(it->second);
  }

  void read_strings() {
    select("StringIds", {"id", "value"},
           [&](const SqliteRows& rows) { strings_.emplace(rows.integer(0), rows.text(1)); });
  }
  void read_version() {
    select("META_DATA_EXPORT", {"name", "value"}, [&](const SqliteRows& rows) {
      if (rows.text(0) == "EXPORT_SCHEMA_VERSION") to_.note("export_schema_version", rows.text(1));
    });
  }
  struct DeviceNumber {
    std::uint32_t device = 0, process = 0;
    std::string uuid;
  };
  // A GPU once for each process that numbers it, or once where the file does not say.
  void read_devices() {
    std::multimap<std::uint32_t, DeviceNumber> numbers;  // by GPU
    select(kDeviceNumberTable, {"gpuId", "cudaId", "pid", "uuid"}, [&](const SqliteRows& rows) {
      numbers.emplace(rows.u32(0), DeviceNumber{rows.u32(1), rows.u32(2), std::string(rows.text(3))});
    });
    const bool early = !db_.has_table(kDeviceTable);
    const Columns columns = {"id", "name", "chipName", "totalMemory", "l2CacheSize", "smCount", "computeMajor",
                             "computeMinor", "uuid"};
    const Columns early_columns = {"deviceId", "name", "chipName", "totalMemory", "l2CacheSize", "numMultiprocessors",
                                   "computeCapabilityMajor", "computeCapabilityMinor", "uuid"};
    select(early ? kEarlyDeviceTable : kDeviceTable, early ? early_columns : columns,
           [&](const SqliteRows& rows) {
             // Only one view of a row's text is asked for at a time.
             const std::string name(rows.text(1)), chip(rows.text(2)), uuid(rows.text(8));
             DeviceRecord device{rows.u32(0), name,         chip,         rows.u64(3), rows.u64(4),
                                 rows.u32(5), rows.u32(6), rows.u32(7), 0,            uuid};
             const auto [first, last] = numbers.equal_range(device.device);
             if (first == last) to_.add(device);
             for (auto number = first; number != last; ++number) {
               device.device = number->second.device;
               device.process = number->second.process;
               if (uuid.empty()) device.uuid = number->second.uuid;
               to_.add(device);
             }
           });
  }
  void read_processes() {
    select(kProcessTable, {"globalPid", "name", "pid"}, [&](const SqliteRows& rows) {
      to_.add(ProcessRecord{process(rows, 0), rows.text(1), rows.u32(2)});
    });
  }
  void read_kernels() {
    select(kKernelTable,
           work_and({"demangledName", "shortName", "mangledName", "registersPerThread", "gridX", "gridY", "gridZ",
                     "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "localMemoryPerThread",
                     "localMemoryTotal", "gridId", "sharedMemoryExecuted"}),
           [&](const SqliteRows& rows) {
             if (!has_times(rows)) return;
             KernelRecord k;
             k.work = work(rows);
             const std::string_view demangled = string(rows, 8), brief = string(rows, 9), mangled = string(rows, 10);
             k.mangled_name = !mangled.empty() ? mangled : !demangled.empty() ? demangled : brief;
             k.demangled_name = demangled;
             if (k.mangled_name.empty()) {
               ++counts_.left_out.nameless;
               return;
             }
             k.registers = rows.u32(11);
             k.grid = {rows.u32(12), rows.u32(13), rows.u32(14)};
             k.block = {rows.u32(15), rows.u32(16), rows.u32(17)};
             k.static_shared = rows.u32(18);
             k.dynamic_shared = rows.u32(19);
             k.local_per_thread = rows.u32(20);
             k.local_total = rows.u64(21);
             k.grid_id = rows.u64(22);
             k.shared_executed = rows.u32(23);
             take(k, counts_.kernels);
           });
  }
  // A launch of a graph whose kernels were not recorded is one record, as in our own recordings of whole graphs.
  void read_graphs() {
    select(kGraphTable, work_and({"graphId", "graphExecId"}), [&](const SqliteRows& rows) {
      if (!has_times(rows)) return;
      const std::string name = fmt::format("{}{}", kWholeGraph, rows.integer(rows.null(8) ? 9 : 8));
      KernelRecord graph;
      graph.work = work(rows);
      graph.mangled_name = name;
      take(graph, counts_.kernels);
      ++counts_.whole_graphs;
    });
  }
  void read_copies() {
    select(kCopyTable, work_and({"bytes", "copyKind", "srcKind", "dstKind"}), [&](const SqliteRows& rows) {
      if (!has_times(rows)) return;
      take(CopyRecord{work(rows), rows.u64(8), rows.u32(9), memory_kind(rows, 10), memory_kind(rows, 11)},
           counts_.copies);
    });
  }
  void read_fills() {
    select(kFillTable, work_and({"bytes", "value", "memKind"}), [&](const SqliteRows& rows) {
      if (!has_times(rows)) return;
      take(FillRecord{work(rows), rows.u64(8), rows.u32(9), memory_kind(rows, 10)}, counts_.fills);
    });
  }
  void read_calls() {
    select(kCallTable, {"start", "end", "globalTid", "correlationId", "returnValue", "eventClass", "nameId"},
           [&](const SqliteRows& rows) {
             if (!has_times(rows)) return;
             take(CallRecord{rows.u64(0), rows.u64(1), process(rows, 2), thread(rows, 2), rows.u32(3), rows.u32(4),
                             rows.integer(5) == 1, string(rows, 6)},
                  counts_.calls);
           });
  }
  // One that was open when the recording ended lasts to the last time in it, as in Nsight Systems' own reports.
  void read_ranges() {
    select(kRangeTable, {"start", "end"}, [&](const SqliteRows& rows) {
      if (is_timed(rows)) last_ns_ = std::max({last_ns_, rows.integer(0), rows.integer(1)});
    });
    select(kRangeTable, {"start", "end", "globalTid", "eventType", "text", "textId"}, [&](const SqliteRows& rows) {
      const std::int64_t type = rows.integer(3);
      const std::string_view text = rows.null(4) ? string(rows, 5) : rows.text(4);
      if ((type != kMark && type != kPushPop && type != kStartEnd) || text.empty()) {
        ++counts_.others;
        return;
      }
      const std::int64_t end = type != kMark && rows.null(1) ? last_ns_ : rows.integer(1);
      // One that reaches into the recording is cut at its start.
      const bool reaches = is_timed(rows) && rows.integer(0) < 0 && end > 0;
      if (!reaches && !has_times(rows, rows.null(1))) return;
      const std::uint64_t start = reaches ? 0 : rows.u64(0);
      take(RangeRecord{start, static_cast<std::uint64_t>(end), process(rows, 2), thread(rows, 2), text,
                       type == kStartEnd},
           counts_.ranges);
    });
  }
  // Memory that was taken before the recording is there from its start.
  static std::uint64_t time(const SqliteRows& rows) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(rows.integer(0), 0));
  }
  bool has_start(const SqliteRows& rows) {
    const bool has = is_time(rows, 0);
    counts_.left_out.timeless += has ? 0U : 1U;
    return has;
  }
  void read_memory() {
    std::uint64_t taken = 0;
    select(kMemoryTable,
           {"start", "globalPid", "deviceId", "contextId", "address", "bytes", "memKind", "memoryOperationType",
            "localMemoryPoolAddress", "localMemoryPoolReleaseThreshold", "localMemoryPoolSize",
            "localMemoryPoolUtilizedSize", "importedMemoryPoolAddress", "importedMemoryPoolProcessId",
            "pc", "correlationId", "streamId", "name"},
           [&](const SqliteRows& rows) {
             if (!has_start(rows)) return;
             PoolState pool;
             if (rows.integer(8) != 0) {
               pool = {kLocalPool, rows.u64(8), rows.u64(9), rows.u64(10), rows.u64(11), 0};
             } else if (rows.integer(12) != 0) {
               pool = {kImportedPool, rows.u64(12), 0, 0, 0, rows.u64(13)};
             }
             const std::int64_t stream = rows.null(16) ? -1 : rows.integer(16);
             take(MemoryRecord{time(rows), process(rows, 1), rows.u32(2), rows.u32(3), rows.u64(4), rows.u64(5),
                               memory_kind(rows, 6), rows.integer(7) == 1, pool, rows.u64(14), rows.u32(15), stream,
                               rows.text(17)},
                  taken);
           });
  }
  void read_pools() {
    std::uint64_t taken = 0;
    select(kPoolTable,
           {"start", "globalPid", "deviceId", "correlationId", "operationType", "minBytesToKeep", "poolType", "address",
            "localMemoryPoolReleaseThreshold", "localMemoryPoolSize", "localMemoryPoolUtilizedSize"},
           [&](const SqliteRows& rows) {
             if (!has_start(rows)) return;
             const PoolState pool{rows.u32(6), rows.u64(7), rows.u64(8), rows.u64(9), rows.u64(10), 0};
             take(PoolRecord{time(rows), process(rows, 1), rows.u32(2), rows.u32(3), rows.u32(4), rows.u64(5),
                             pool},
                  taken);
           });
  }
  // Events of tables that are not read: synchronisation, calls of the system and of libraries, samples of metrics. They
  // are not needed, so a damage of theirs ends nothing but the count.
  void count_others() {
    auto names = SqliteRows::select(db_, "SELECT name FROM sqlite_schema WHERE type = 'table'");
    while (names && names.value().next()) {
      const std::string table(names.value().text(0));
      const bool plain = std::all_of(table.begin(), table.end(),
                                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
      const bool taken = std::find(kTaken.begin(), kTaken.end(), table) != kTaken.end();
      if (!plain || taken || (!db_.has_column(table, "start") && !db_.has_column(table, "timestamp"))) continue;
      auto rows = SqliteRows::select(db_, fmt::format("SELECT 1 FROM {}", table), most_rows_);
      while (rows && rows.value().next()) ++counts_.others;
    }
  }
  template <class Record>
  void take(const Record& record, std::uint64_t& count) {
    to_.add(record);
    ++count;
  }

  const SqliteReader& db_;
  std::uint64_t most_rows_;
  ProfileSink& to_;
  std::unordered_map<std::int64_t, std::string> strings_;
  ProfileCounts counts_;
  std::int64_t last_ns_ = 0;  // of the work, calls and ranges that were read
  std::optional<Failure> problem_;
};

std::optional<Failure> missing_kernels(const SqliteReader& db) {
  if (!db.has_table(kKernelTable) && !db.has_table(kGraphTable)) {
    return failure("it has no table {}: no kernel ran under nsys, or this is no `nsys export --type sqlite`",
                   kKernelTable);
  }
  for (const std::string_view table : {kKernelTable, kGraphTable}) {
    for (const std::string_view column : {"start", "end"}) {
      if (db.has_table(table) && !db.has_column(table, column)) return failure("{} has no column {}", table, column);
    }
  }
  return std::nullopt;
}

}  // namespace

Result<ProfileCounts> read_nsys(const std::filesystem::path& file, ProfileSink& to) {
  const Result<OpenFile> opened = open_file(file);
  if (!opened) return failure("{}", opened.error());
  std::string magic(kMagic.size(), '\0');
  if (opened.value().size < 100 || read_at(opened.value(), 0, std::as_writable_bytes(std::span(magic))) ||
      magic != kMagic) {
    return failure("it is no SQLite file; `nsys export --type sqlite` makes one of an .nsys-rep");
  }
  const Result<SqliteReader> db = SqliteReader::open(file);
  if (!db) return failure("the SQLite file cannot be read: {}", db.error());
  if (auto problem = missing_kernels(db.value())) return *problem;
  return NsysReader(db.value(), opened.value().size, to).run();
}

}  // namespace kvroof
