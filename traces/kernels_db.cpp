#include "traces/kernels_db.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include "sim/core/files.hpp"
#include "traces/kernel_names.hpp"
#include "traces/kernel_tables.hpp"
#include "traces/sqlite.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTransaction = 100'000;  // rows
// Columns of kvroof_step before the bytes by cause.
constexpr std::size_t kFixedColumns = 5;
// Codes of the export that its readers filter by.
constexpr int kRuntimeCall = 0, kDriverCall = 1;
constexpr std::uint32_t kUnknownMemory = 7;

std::string create_steps() {
  std::string sql =
      "CREATE TABLE kvroof_step (step INTEGER NOT NULL PRIMARY KEY, phase TEXT NOT NULL, sequences INTEGER NOT NULL, "
      "start_ns INTEGER, end_ns INTEGER";
  for (const std::string_view cause : kCauseNames) sql += fmt::format(", {}_bytes INTEGER NOT NULL", cause);
  return sql + ");";
}

std::optional<std::uint64_t> only_if(bool known, std::uint64_t value) {
  return known ? std::optional<std::uint64_t>(value) : std::nullopt;
}

std::optional<std::uint64_t> if_not_0(std::uint64_t value) { return only_if(value != 0, value); }

std::optional<std::string_view> if_any(std::string_view text) {
  return text.empty() ? std::nullopt : std::optional<std::string_view>(text);
}

std::optional<std::int32_t> if_not_negative(std::int32_t value) {
  return value < 0 ? std::nullopt : std::optional<std::int32_t>(value);
}

// The export packs processes and threads of all virtual machines into one number.
std::uint64_t global_process(std::uint32_t process) { return std::uint64_t{process & 0xffffffU} << 24U; }
std::uint64_t global_thread(std::uint32_t process, std::uint32_t thread) {
  return global_process(process) | (thread & 0xffffffU);
}

// CUPTI counts kinds of memory from 1 and has 0 for unknown; the export counts from 0.
std::uint32_t exported_memory_kind(std::uint32_t kind) {
  return kind == 0 || kind > kUnknownMemory ? kUnknownMemory : kind - 1;
}

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class T>
using ByText = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

struct KernelName {
  std::uint64_t mangled = 0, demangled = 0, brief = 0;  // ids in StringIds
};

}  // namespace

struct KernelDatabase::State {
  fs::path path;
  std::optional<SqliteWriter> db;  // closed before the rename
  SqliteStatement insert_string;
  std::unordered_map<std::string_view, SqliteStatement> inserts;  // of tables with rows; keys are table names
  ByText<std::uint64_t> strings;
  ByText<KernelName> names;
  ByText<std::uint64_t> gpus;                             // ids by what tells GPUs apart
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;  // process and device that have a row
  std::uint64_t pending = 0;  // rows of the open transaction
  bool has_records = false;
  bool has_operators = false;
  bool committed = false;  // a transaction with records
  bool completed = false;
  std::uint64_t first_ns = UINT64_MAX, last_ns = 0;  // of the device's work

  void create_tables();
  void learn_names();
  sqlite3_stmt* insert_into(std::string_view table);
  template <class... Values>
  void add(std::string_view table, const Values&... values) {
    db->insert(insert_into(table), values...);
    if (++pending >= kTransaction) commit();
  }
  void commit() {
    db->run("COMMIT; BEGIN;");
    committed = committed || has_records;
    pending = 0;
  }
  std::uint64_t intern(std::string_view text);
  const KernelName& name_of(const KernelRecord& record);
  std::uint64_t gpu_of(const DeviceRecord& record);
  void saw(const DeviceWork& work);
};

void KernelDatabase::State::create_tables() {
  db->run(create_steps());
  db->run(kCommonTables);
}

// Tables and names are as the killed writer left them.
void KernelDatabase::State::learn_names() {
  const std::string part = staged_kernels_db(path).string();
  const SqliteReader old = SqliteReader::open(part).or_throw(part);
  SqliteRows rows = SqliteRows::select(old, "SELECT id, value FROM StringIds").or_throw(part);
  while (rows.next()) strings.emplace(rows.text(1), static_cast<std::uint64_t>(rows.integer(0)));
  if (rows.problem()) throw Error(fmt::format("{}: {}", part, rows.problem()->message));
  has_records = old.has_table("META_DATA_EXPORT");
  committed = true;  // what is there stays, whatever becomes of it here
  has_operators = old.has_table(kOperatorTable);
}

sqlite3_stmt* KernelDatabase::State::insert_into(std::string_view table) {
  const auto it = inserts.find(table);
  if (it != inserts.end()) return it->second.get();
  if (!has_records) {
    db->run(kExportTables);
    has_records = true;
  }
  has_operators = has_operators || table == kOperatorTable;
  const KernelTable& t = kernel_table(table);
  if (!t.columns.empty()) db->run(fmt::format("CREATE TABLE IF NOT EXISTS {} ({})", t.name, t.columns));
  std::string marks = "?";
  for (const char c : t.inserted) marks += c == ',' ? ", ?" : "";
  const std::string sql = fmt::format("INSERT OR REPLACE INTO {} ({}) VALUES ({})", t.name, t.inserted, marks);
  return inserts.emplace(t.name, db->prepare(sql)).first->second.get();
}

std::uint64_t KernelDatabase::State::intern(std::string_view text) {
  const auto it = strings.find(text);
  if (it != strings.end()) return it->second;
  const std::uint64_t id = strings.size();
  db->insert(insert_string.get(), id, text);
  strings.emplace(text, id);
  return id;
}

const KernelName& KernelDatabase::State::name_of(const KernelRecord& record) {
  const std::string_view mangled = record.mangled_name;
  const auto it = names.find(mangled);
  if (it != names.end()) return it->second;
  const std::string demangled = demangled_name(record.demangled_name.empty() ? mangled : record.demangled_name);
  return names.emplace(mangled, KernelName{intern(mangled), intern(demangled), intern(short_name(demangled))})
      .first->second;
}

void KernelDatabase::State::saw(const DeviceWork& work) {
  if (work.end_ns == 0) return;
  first_ns = std::min(first_ns, work.start_ns);
  last_ns = std::max(last_ns, work.end_ns);
}

fs::path staged_kernels_db(const fs::path& path) { return path.string() + ".part"; }

KernelDatabase::KernelDatabase(const fs::path& path, From from) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = path;
  const fs::path part = staged_kernels_db(path);
  if (from == From::kNothing) {
    fs::remove(part);
    fs::remove(part.string() + "-journal");
  } else {
    s.learn_names();
  }
  s.db.emplace(part, path);
  // A rollback journal that is never synchronised: it outlives a kill, and rows that are only ever appended hardly
  // touch it. complete() synchronises the whole file.
  s.db->run("PRAGMA journal_mode=TRUNCATE; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE;");
  s.db->run("BEGIN;");
  if (from == From::kNothing) s.create_tables();
  s.insert_string = s.db->prepare("INSERT INTO StringIds VALUES (?, ?)");
}

KernelDatabase::~KernelDatabase() {
  State& s = *state_;
  if (s.completed) return;
  s.inserts.clear();
  s.insert_string.reset();
  s.db.reset();
  std::error_code ignored;
  if (s.committed) return;
  fs::remove(staged_kernels_db(s.path), ignored);
  fs::remove(staged_kernels_db(s.path).string() + "-journal", ignored);
}

void KernelDatabase::add(const KernelRecord& r) {
  State& s = *state_;
  const KernelName name = s.name_of(r);
  const DeviceWork& w = r.work;
  s.saw(w);
  s.add(kKernelTable, w.start_ns, w.end_ns, w.device, w.context, w.stream, w.correlation, global_process(w.process),
        name.demangled, name.brief, name.mangled, r.registers, r.grid[0], r.grid[1], r.grid[2], r.block[0],
        r.block[1], r.block[2], r.static_shared, r.dynamic_shared, r.local_per_thread, r.local_total, r.grid_id,
        r.shared_executed, if_not_0(w.graph_node));
}

void KernelDatabase::add(const CopyRecord& r) {
  const DeviceWork& w = r.work;
  state_->saw(w);
  state_->add(kCopyTable, w.start_ns, w.end_ns, w.device, w.context, w.stream, w.correlation,
              global_process(w.process), r.bytes, r.kind, exported_memory_kind(r.source_kind),
              exported_memory_kind(r.target_kind), if_not_0(w.graph_node));
}

void KernelDatabase::add(const FillRecord& r) {
  const DeviceWork& w = r.work;
  state_->saw(w);
  state_->add(kFillTable, w.start_ns, w.end_ns, w.device, w.context, w.stream, w.correlation,
              global_process(w.process), r.value, r.bytes, if_not_0(w.graph_node),
              exported_memory_kind(r.memory_kind));
}

void KernelDatabase::add(const CallRecord& r) {
  state_->add(kCallTable, r.start_ns, r.end_ns, r.driver ? kDriverCall : kRuntimeCall,
              global_thread(r.process, r.thread), r.correlation, state_->intern(r.name), r.result);
}

void KernelDatabase::add(const RangeRecord& r) {
  const int type = r.end_ns == 0 ? kMark : r.by_id ? kStartEnd : kPushPop;
  state_->add(kRangeTable, r.start_ns, if_not_0(r.end_ns), type, r.text,
              global_thread(r.process, r.thread));
}

void KernelDatabase::add(const MemoryRecord& r) {
  const bool local = r.pool.type == kLocalPool, imported = r.pool.type == kImportedPool;
  state_->add(kMemoryTable, r.time_ns, global_process(r.process), r.device, r.context, r.address,
              r.code_address, r.bytes, exported_memory_kind(r.memory_kind), r.release ? 1 : 0, if_any(r.name),
              if_not_0(r.correlation), only_if(r.stream >= 0, r.stream), only_if(local, r.pool.address),
              only_if(local, r.pool.release_threshold), only_if(local, r.pool.bytes),
              only_if(local, r.pool.used_bytes), only_if(imported, r.pool.address), only_if(imported, r.pool.owner));
}

void KernelDatabase::add(const PoolRecord& r) {
  const bool local = r.pool.type == kLocalPool;
  state_->add(kPoolTable, r.time_ns, global_process(r.process), r.device, r.pool.address, r.operation, r.pool.type,
              r.correlation, only_if(r.operation == kPoolTrimmed, r.least_bytes),
              only_if(local, r.pool.release_threshold), only_if(local, r.pool.bytes),
              only_if(local, r.pool.used_bytes));
}

void KernelDatabase::add(const OverheadRecord& r) { state_->add(kOverheadTable, r.start_ns, r.end_ns, r.kind); }

void KernelDatabase::add(const EnvironmentRecord& r) {
  state_->add(kEnvironmentTable, r.time_ns, r.device, if_not_0(r.sm_clock_mhz), if_not_0(r.memory_clock_mhz),
              if_not_0(r.power_mw), if_not_0(r.temperature_c));
}

// The first process that names a GPU gives it its number, where that is free.
std::uint64_t KernelDatabase::State::gpu_of(const DeviceRecord& r) {
  const std::string key = r.uuid.empty() ? std::to_string(r.device) : std::string(r.uuid);
  if (const auto it = gpus.find(key); it != gpus.end()) return it->second;
  const auto taken = [&](std::uint64_t id) {
    return std::any_of(gpus.begin(), gpus.end(), [id](const auto& gpu) { return gpu.second == id; });
  };
  std::uint64_t id = r.device;
  for (std::uint64_t next = 0; taken(id); ++next) id = next;
  gpus.emplace(key, id);
  add(kDeviceTable, id, r.name, r.l2_bytes, r.memory_bytes, r.multiprocessors,
      if_any(r.uuid), r.chip, r.compute_major, r.compute_minor);
  return id;
}

void KernelDatabase::add(const DeviceRecord& r) {
  const std::uint64_t gpu = state_->gpu_of(r);
  if (r.process == 0 || !state_->seen.emplace(r.process, r.device).second) return;
  state_->add(kDeviceNumberTable, gpu, r.device, r.process, r.uuid, r.multiprocessors);
}

void KernelDatabase::add(const ProcessRecord& r) {
  state_->add(kProcessTable, global_process(r.process), r.pid == 0 ? r.process : r.pid, r.name);
}

void KernelDatabase::add(const OperatorRecord& r) {
  const auto step = r.step == kNoStep ? std::nullopt : std::optional<std::uint32_t>(r.step);
  state_->add(kOperatorTable, r.correlation, r.graph_node, step,
              if_not_negative(r.layer), r.name, r.cause, r.declared_bytes, if_not_0(r.declared_flops),
              if_not_negative(r.sequence));
}

void KernelDatabase::add(const CounterRecord& r) {
  const auto of_steps = r.steps > 0 ? std::optional<std::uint32_t>(r.first_step) : std::nullopt;
  const auto at = r.steps > 0 ? std::nullopt : std::optional<std::uint64_t>(r.time_ns);
  const bool of_all = r.operation.empty();
  state_->add(kCounterTable, of_steps, r.steps, at, r.device, r.name, r.value, if_not_negative(r.layer),
              of_all ? std::nullopt : std::optional(r.operation),
              of_all ? std::nullopt : std::optional(r.declared_bytes));
}

void KernelDatabase::note(std::string_view key, std::string_view value) { state_->add(kNoteTable, key, value); }

void KernelDatabase::flush() {
  if (state_->pending > 0) state_->commit();
}

namespace {

void insert_steps(SqliteWriter& writer, std::span<const StepRecord> steps) {
  std::string sql = "INSERT INTO kvroof_step VALUES (?";
  for (std::size_t i = 1; i < kFixedColumns + kCauses; ++i) sql += ",?";
  const SqliteStatement statement = writer.prepare(sql + ")");
  for (const StepRecord& step : steps) {
    const bool timed = step.start_ns != 0 || step.end_ns != 0;
    const auto start = timed ? std::optional(step.start_ns) : std::nullopt;
    const auto end = timed ? std::optional(step.end_ns) : std::nullopt;
    const auto& b = step.bytes.bytes;
    static_assert(kCauses == 6);
    writer.insert(statement.get(), step.step, std::string_view(step.phase), step.sequences, start, end, b[0], b[1],
                  b[2], b[3], b[4], b[5]);
  }
}

// What readers of the export look at first, and the index that finds what the engine meant by a kernel.
void describe_export(SqliteWriter& db, bool operators, std::uint64_t first_ns, std::uint64_t last_ns) {
  const auto& v = kNsightSchema;
  db.run(fmt::format("DELETE FROM META_DATA_EXPORT; INSERT INTO META_DATA_EXPORT VALUES "
                     "('EXPORT_SCHEMA_VERSION', '{}.{}.{}'), ('EXPORT_SCHEMA_VERSION_MAJOR', '{}'), "
                     "('EXPORT_SCHEMA_VERSION_MINOR', '{}'), ('EXPORT_SCHEMA_VERSION_MICRO', '{}');",
                     v[0], v[1], v[2], v[0], v[1], v[2]));
  if (first_ns <= last_ns) {
    db.run(fmt::format("CREATE TABLE IF NOT EXISTS ANALYSIS_DETAILS (duration INTEGER NOT NULL, startTime INTEGER NOT "
                       "NULL, stopTime INTEGER NOT NULL); INSERT INTO ANALYSIS_DETAILS VALUES ({}, {}, {});",
                       last_ns - first_ns, first_ns, last_ns));
  }
  if (!operators) return;
  db.run("CREATE INDEX IF NOT EXISTS kvroof_operator_of_call ON kvroof_operator (correlation, graph_node);");
}

}  // namespace

void KernelDatabase::complete(std::span<const StepRecord> steps) {
  State& s = *state_;
  check(!s.completed, "a database is completed once");
  s.db->run("DELETE FROM kvroof_step;");  // of a writer that was killed after it had completed this
  insert_steps(*s.db, steps);
  if (s.has_records) describe_export(*s.db, s.has_operators, s.first_ns, s.last_ns);
  s.db->run("COMMIT; PRAGMA journal_mode=DELETE;");
  s.inserts.clear();
  s.insert_string.reset();
  s.db.reset();
  s.completed = true;
  const fs::path part = staged_kernels_db(s.path);
  sync_path(part);
  std::error_code error;
  fs::rename(part, s.path, error);
  if (error) throw Error(fmt::format("cannot rename {} to {}: {}", part.string(), s.path.string(), error.message()));
  sync_path(s.path.parent_path());
}

void write_kernels_db(const fs::path& path, std::span<const StepRecord> steps) { KernelDatabase(path).complete(steps); }

Result<std::vector<std::pair<std::uint64_t, std::uint64_t>>> read_step_times(const fs::path& path) {
  const Result<SqliteReader> db = SqliteReader::open(path);
  if (!db) return failure("{}", db.error());
  auto rows = SqliteRows::select(db.value(), "SELECT start_ns, end_ns FROM kvroof_step ORDER BY step");
  if (!rows) return failure("{}", rows.error());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> times;
  while (rows.value().next()) {
    times.emplace_back(static_cast<std::uint64_t>(rows.value().integer(0)),
                       static_cast<std::uint64_t>(rows.value().integer(1)));
  }
  if (rows.value().problem()) return *rows.value().problem();
  return times;
}

}  // namespace kvroof
