#include "traces/kernel_reader.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <unordered_map>
#include <utility>

#include "traces/journal.hpp"
#include "traces/kernel_kinds.hpp"
#include "traces/kernel_tables.hpp"
#include "traces/sqlite.hpp"
#include "traces/work_gatherer.hpp"

namespace kvroof {
namespace {

constexpr std::array<std::string_view, 14> kCopyNames = {
    "copy",           "copy host to device", "copy device to host",   "copy", "copy", "copy", "copy", "copy",
    "copy on device", "copy on host",        "copy device to device", "copy unified", "copy unified", "copy unified"};

constexpr std::uint32_t kThreads = 1U << 24U;  // of a process, in the ids of the export

}  // namespace

struct KernelReader::State {
  std::filesystem::path path;
  SqliteReader db;
  std::unordered_map<std::int64_t, std::string> strings;
  struct DeviceName {
    std::uint32_t id = 0;
    std::string name, chip;
  };
  std::vector<DeviceName> device_names;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> device_ids;  // of a process's devices

  [[nodiscard]] Error damaged(const std::string& why) const {
    return Error(fmt::format("{}: {}", path.string(), why), ExitCode::kDamagedTrace);
  }
  [[nodiscard]] SqliteRows select(const std::string& sql) const {
    Result<SqliteRows> rows = SqliteRows::select(db, sql);
    if (!rows) throw damaged(rows.error());
    return std::move(rows).value();
  }
  void finish(const SqliteRows& rows) const {
    if (rows.problem()) throw damaged(rows.problem()->message);
  }
  [[nodiscard]] std::uint64_t count(std::string_view table, std::string_view what = "*") const {
    if (!db.has_table(table)) return 0;
    SqliteRows rows = select(fmt::format("SELECT count({}) FROM {}", what, table));
    const std::uint64_t n = rows.next() ? rows.u64(0) : 0;
    finish(rows);
    return n;
  }
  [[nodiscard]] std::string_view string(std::int64_t id) const {
    const auto it = strings.find(id);
    return it == strings.end() ? std::string_view{} : std::string_view(it->second);
  }
  void read_strings();
  void read_device_names();
  [[nodiscard]] std::optional<std::uint32_t> gpu_of(std::uint32_t process, std::uint32_t device) const;
  [[nodiscard]] std::string work_query() const;
  [[nodiscard]] bool has_templates() const;
};

void KernelReader::State::read_strings() {
  SqliteRows rows = select("SELECT id, value FROM StringIds");
  while (rows.next()) strings.emplace(rows.integer(0), rows.text(1));
  finish(rows);
}

void KernelReader::State::read_device_names() {
  if (!db.has_table(kDeviceTable)) return;
  SqliteRows rows = select("SELECT id, name, chipName FROM TARGET_INFO_GPU ORDER BY id, rowid");
  while (rows.next()) {
    DeviceName device{rows.u32(0), std::string(rows.text(1)), {}};  // one view of a row's text at a time
    device.chip = rows.text(2);
    device_names.push_back(std::move(device));
  }
  finish(rows);
  if (!db.has_table(kDeviceNumberTable)) return;
  SqliteRows numbers = select("SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE");
  while (numbers.next()) device_ids.emplace(std::pair(numbers.u32(0), numbers.u32(1)), numbers.u32(2));
  finish(numbers);
}

// Without numbers of processes, the one GPU that is recorded is that of all.
std::optional<std::uint32_t> KernelReader::State::gpu_of(std::uint32_t process, std::uint32_t device) const {
  const auto numbered = device_ids.find({process, device});
  if (numbered != device_ids.end()) return numbered->second;
  const bool one = device_ids.empty() && device_names.size() == 1 && device_names.front().id == device;
  return one ? std::optional(device) : std::nullopt;
}

KernelReader KernelReader::open(const std::filesystem::path& trace) {
  auto state = std::make_shared<State>();
  state->path = trace / kKernelsFile;
  Result<SqliteReader> db = SqliteReader::open(state->path);
  if (!db) throw state->damaged(db.error());
  state->db = std::move(db).value();
  if (!state->db.has_table("StringIds") || !state->db.has_table(kKernelTable)) {
    throw state->damaged("it has no table of kernels");
  }
  state->read_strings();
  state->read_device_names();
  KernelReader reader;
  reader.state_ = std::move(state);
  return reader;
}

KernelCounts KernelReader::counts() const {
  const State& s = *state_;
  KernelCounts c;
  c.kernels = s.count(kKernelTable);
  c.processes = s.count(kKernelTable, "DISTINCT coalesce(globalPid, 0)");
  c.copies = s.count(kCopyTable);
  c.fills = s.count(kFillTable);
  c.calls = s.count(kCallTable);
  c.ranges = s.count(kRangeTable);
  c.memory = s.count(kMemoryTable);
  c.operators = s.count(kOperatorTable);
  c.counters = s.count(kCounterTable);
  for (const std::string_view table : {kKernelTable, kCopyTable, kFillTable}) {
    if (!s.db.has_table(table)) continue;
    SqliteRows rows = s.select(fmt::format("SELECT min(start), max(end) FROM {} WHERE end > 0", table));
    if (rows.next() && !rows.null(0)) {
      c.first_ns = c.last_ns == 0 ? rows.u64(0) : std::min(c.first_ns, rows.u64(0));
      c.last_ns = std::max(c.last_ns, rows.u64(1));
    }
    s.finish(rows);
  }
  return c;
}

std::vector<std::pair<std::string, std::string>> KernelReader::notes() const {
  std::vector<std::pair<std::string, std::string>> notes;
  if (!state_->db.has_table(kNoteTable)) return notes;
  SqliteRows rows = state_->select("SELECT key, value FROM kvroof_note ORDER BY key");
  while (rows.next()) notes.emplace_back(rows.text(0), rows.text(1));
  state_->finish(rows);
  return notes;
}

std::vector<DeviceRecord> KernelReader::devices() const {
  std::vector<DeviceRecord> devices;
  if (!state_->db.has_table(kDeviceTable)) return devices;
  SqliteRows rows = state_->select(
      "SELECT id, totalMemory, l2CacheSize, smCount, computeMajor, computeMinor FROM TARGET_INFO_GPU "
      "ORDER BY id, rowid");
  while (rows.next() && devices.size() < state_->device_names.size()) {
    const State::DeviceName& names = state_->device_names[devices.size()];
    devices.push_back(DeviceRecord{rows.u32(0), names.name, names.chip, rows.u64(1), rows.u64(2), rows.u32(3),
                                   rows.u32(4), rows.u32(5)});
  }
  state_->finish(rows);
  return devices;
}

std::string_view KernelReader::device_name(std::uint32_t process, std::uint32_t device) const {
  const std::uint32_t id = state_->gpu_of(process, device).value_or(device);
  const auto found = std::ranges::find(state_->device_names, id, &State::DeviceName::id);
  return found == state_->device_names.end() ? std::string_view{} : found->name;
}

// Whether any operator holds for every launch of its node.
bool KernelReader::State::has_templates() const {
  SqliteRows rows = select("SELECT 1 FROM kvroof_operator WHERE correlation = 0 AND graph_node <> 0 LIMIT 1");
  const bool any = rows.next();
  finish(rows);
  return any;
}

// Columns: kind, start, end, device, context, stream, correlation, graph node, process, name or copy kind, bytes (of a
// kernel its whole name), row, then the operator: name, cause, step, layer, bytes, flops, row.
std::string KernelReader::State::work_query() const {
  constexpr std::string_view kWork = "start, end, deviceId, contextId, streamId, correlationId, graphNodeId, globalPid";
  std::string sql;
  if (db.has_table(kOperatorTable)) {
    constexpr std::string_view kExact = "k.correlationId";
    constexpr std::string_view kEither =
        "CASE WHEN EXISTS (SELECT 1 FROM kvroof_operator e WHERE e.correlation = k.correlationId AND "
        "e.graph_node = coalesce(k.graphNodeId, 0)) THEN k.correlationId ELSE 0 END";
    sql = fmt::format(
        "SELECT 0, {}, shortName, demangledName, k.rowid, o.name, o.cause, o.step, o.layer, o.declared_bytes, "
        "o.declared_flops, o.rowid "
        "FROM {} k LEFT JOIN kvroof_operator o ON o.correlation = {} AND o.graph_node = coalesce(k.graphNodeId, 0) AND "
        "(o.correlation <> 0 OR o.graph_node <> 0)",
        kWork, kKernelTable, has_templates() ? kEither : kExact);
  } else {
    sql = fmt::format("SELECT 0, {}, shortName, demangledName, rowid, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM {}",
                      kWork, kKernelTable);
  }
  constexpr std::string_view kNoOperator = "NULL, NULL, NULL, NULL, NULL, NULL, NULL";
  if (db.has_table(kCopyTable)) {
    sql += fmt::format(" UNION ALL SELECT 1, {}, copyKind, bytes, rowid, {} FROM {}", kWork, kNoOperator, kCopyTable);
  }
  if (db.has_table(kFillTable)) {
    sql += fmt::format(" UNION ALL SELECT 2, {}, 0, bytes, rowid, {} FROM {}", kWork, kNoOperator, kFillTable);
  }
  return sql + " ORDER BY 2, 1, 12, 19";
}

void KernelReader::for_each_work(const std::function<void(const WorkRow&)>& visit) const {
  SqliteRows rows = state_->select(state_->work_query());
  WorkGatherer gatherer(visit, [&](std::uint32_t process, std::uint32_t device) {
    return state_->gpu_of(process, device);
  });
  std::unordered_map<std::int64_t, std::string_view> purposes;  // by id of the whole name
  while (rows.next()) {
    const auto kind = static_cast<WorkKind>(rows.integer(0));
    const auto code = static_cast<std::uint64_t>(rows.integer(9));
    if (kind != WorkKind::kKernel) {
      gatherer.take(rows, kind == WorkKind::kFill ? "fill" : kCopyNames[code < kCopyNames.size() ? code : 0], "");
      continue;
    }
    const auto [purpose, is_new] = purposes.try_emplace(rows.integer(10));
    if (is_new) purpose->second = kind_of_kernel(state_->string(rows.integer(10)));
    gatherer.take(rows, state_->string(rows.integer(9)), purpose->second);
  }
  gatherer.flush();
  state_->finish(rows);
}

void KernelReader::for_each_call(const std::function<void(const CallRecord&)>& visit) const {
  if (!state_->db.has_table(kCallTable)) return;
  SqliteRows rows = state_->select(fmt::format(
      "SELECT start, end, globalTid, correlationId, returnValue, eventClass, nameId FROM {} "
      "ORDER BY start, end DESC, rowid",
      kCallTable));
  while (rows.next()) {
    const std::uint64_t thread = rows.u64(2);
    visit({rows.u64(0), rows.u64(1), process_of(thread), thread_of(thread), rows.u32(3), rows.u32(4),
           rows.integer(5) == 1, state_->string(rows.integer(6))});
  }
  state_->finish(rows);
}

void KernelReader::for_each_range(const std::function<void(const RangeRecord&)>& visit) const {
  if (!state_->db.has_table(kRangeTable)) return;
  SqliteRows rows =
      state_->select("SELECT start, end, globalTid, text FROM NVTX_EVENTS ORDER BY start, end DESC, rowid");
  while (rows.next()) {
    const std::uint64_t thread = rows.u64(2);
    visit({rows.u64(0), rows.u64(1), process_of(thread), thread_of(thread),
           rows.text(3)});
  }
  state_->finish(rows);
}

std::uint64_t KernelReader::timeline_start(std::uint64_t work_ns) const {
  const State& s = *state_;
  std::uint64_t start = work_ns;
  const auto take = [&](std::string_view table, const std::string& rest) {
    if (!s.db.has_table(table)) return;
    SqliteRows rows = s.select(fmt::format("SELECT min({0}.start) FROM {0} {1}", table, rest));
    if (rows.next() && !rows.null(0)) start = std::min(start, rows.u64(0));
    s.finish(rows);
  };
  take(kRangeTable, "");
  take(kCallTable, fmt::format("WHERE end >= {}", start));
  for (const std::string_view table : {kKernelTable, kCopyTable, kFillTable}) {
    if (!s.db.has_table(table)) continue;
    take(kCallTable,
         fmt::format("JOIN (SELECT correlationId AS launched, globalPid AS process FROM {0} WHERE end > 0 "
                     "ORDER BY start LIMIT 1) ON launched = correlationId AND process / {1} = globalTid / {1}",
                     table, kThreads));
  }
  return start;
}

void KernelReader::for_each_step(
    const std::function<void(std::uint32_t, std::string_view, const ByteCounters&)>& visit) const {
  if (!state_->db.has_table("kvroof_step")) return;
  std::string columns;
  for (const std::string_view cause : kCauseNames) columns += fmt::format(", {}_bytes", cause);
  SqliteRows rows = state_->select(fmt::format("SELECT step, phase{} FROM kvroof_step ORDER BY step", columns));
  while (rows.next()) {
    ByteCounters bytes;
    for (std::size_t c = 0; c < kCauses; ++c) bytes.bytes[c] = rows.u64(static_cast<int>(c) + 2);
    visit(rows.u32(0), rows.text(1), bytes);
  }
  state_->finish(rows);
}

void KernelReader::for_each_counter(const std::function<void(const CounterRecord&)>& visit) const {
  if (!state_->db.has_table(kCounterTable)) return;
  // Traces of older versions have counters of steps alone.
  const bool by_operator = state_->db.has_column(kCounterTable, "operator");
  SqliteRows rows = state_->select(
      fmt::format("SELECT first_step, steps, time_ns, device, name, value{} FROM kvroof_counter "
                  "ORDER BY steps = 0, first_step, time_ns, rowid",
                  by_operator ? ", layer, operator, declared_bytes" : ""));
  while (rows.next()) {
    CounterRecord counter{rows.u32(0), rows.u32(1), rows.u64(2), rows.u32(3), rows.text(4), rows.number(5)};
    if (by_operator && !rows.null(7)) {
      counter.layer = rows.null(6) ? -1 : static_cast<std::int32_t>(rows.u32(6));
      counter.operation = rows.text(7);
      counter.declared_bytes = rows.u64(8);
    }
    visit(counter);
  }
  state_->finish(rows);
}

void KernelReader::for_each_table(const std::function<void(std::string_view)>& begin,
                                  const std::function<void(const std::vector<std::string_view>&)>& row) const {
  std::vector<std::string> tables;
  SqliteRows names = state_->select(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'StringIds' AND name NOT LIKE 'sqlite_%' "
      "ORDER BY name");
  while (names.next()) tables.emplace_back(names.text(0));
  state_->finish(names);
  for (const std::string& table : tables) {
    const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
    if (std::all_of(table.begin(), table.end(), plain)) continue;
    throw Error(fmt::format("kernels.sqlite has a table `{}`: expected letters, digits and _", table),
                ExitCode::kDamagedTrace);
  }
  constexpr std::array<std::string_view, 5> kIds = {"demangledName", "shortName", "mangledName", "nameId", "textId"};
  for (const std::string& table : tables) {
    SqliteRows rows = state_->select(fmt::format("SELECT * FROM \"{}\"", table));
    std::vector<std::string_view> cells(static_cast<std::size_t>(rows.columns()));
    std::vector<bool> is_id(cells.size());
    bool begun = false;
    while (rows.next()) {
      for (std::size_t c = 0; c < cells.size() && !begun; ++c) {
        cells[c] = rows.column_name(static_cast<int>(c));
        is_id[c] = std::find(kIds.begin(), kIds.end(), cells[c]) != kIds.end();
      }
      if (!begun) begin(table), row(cells);
      begun = true;
      for (std::size_t c = 0; c < cells.size(); ++c) {
        const int column = static_cast<int>(c);
        const bool id = is_id[c] && !rows.null(column);
        cells[c] = id ? state_->string(rows.integer(column)) : rows.text(column);
      }
      row(cells);
    }
    state_->finish(rows);
  }
}

}  // namespace kvroof
