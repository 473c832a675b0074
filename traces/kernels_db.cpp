#include "traces/kernels_db.hpp"

#include <sqlite3.h>

#include <memory>
#include <string>

#include "traces/file_io.hpp"

namespace kvroof {
namespace {

// Names and columns of Nsight Systems' export, so that one reader serves both.
constexpr const char* kTables = R"(
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
  start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
  greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER,
  cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
  staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
  localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
  sharedMemoryLimitConfig INTEGER);
)";

// Columns of kvroof_step before the bytes by cause.
constexpr int kFixedColumns = 5;

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinishStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, FinishStatement>;

Result<Database> open_database(const std::filesystem::path& path, int flags) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) return failure("{}", sqlite3_errstr(code));
  return database;
}

// The writing side: every failure is an Error with the path.
class Writer {
 public:
  explicit Writer(const std::filesystem::path& path, const std::filesystem::path& shown)
      : shown_(shown),
        db_(open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
                .or_throw("cannot write " + shown.string())) {}
  void run(const std::string& sql) { require(sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr)); }
  Statement prepare(const std::string& sql) {
    sqlite3_stmt* raw = nullptr;
    require(sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &raw, nullptr));
    return Statement(raw);
  }
  void insert(sqlite3_stmt* statement) {
    const int code = sqlite3_step(statement);
    require(code == SQLITE_DONE ? SQLITE_OK : code);
    require(sqlite3_reset(statement));
  }

 private:
  void require(int code) const {
    if (code != SQLITE_OK) throw Error(fmt::format("cannot write {}: {}", shown_.string(), sqlite3_errmsg(db_.get())));
  }
  std::filesystem::path shown_;
  Database db_;
};

std::string create_steps() {
  std::string sql =
      "CREATE TABLE kvroof_step (step INTEGER NOT NULL PRIMARY KEY, phase TEXT NOT NULL, sequences INTEGER NOT NULL, "
      "start_ns INTEGER, end_ns INTEGER";
  for (const std::string_view cause : kCauseNames) sql += fmt::format(", {}_bytes INTEGER NOT NULL", cause);
  return sql + ");";
}

void insert_steps(Writer& writer, std::span<const StepRecord> steps) {
  std::string sql = "INSERT INTO kvroof_step VALUES (?";
  for (std::size_t i = 1; i < kFixedColumns + kCauses; ++i) sql += ",?";
  const Statement statement = writer.prepare(sql + ")");
  sqlite3_stmt* s = statement.get();
  for (const StepRecord& step : steps) {
    sqlite3_bind_int64(s, 1, step.step);
    sqlite3_bind_text(s, 2, step.phase.c_str(), -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 3, step.sequences);
    if (step.start_ns != 0 || step.end_ns != 0) {
      sqlite3_bind_int64(s, 4, static_cast<sqlite3_int64>(step.start_ns));
      sqlite3_bind_int64(s, 5, static_cast<sqlite3_int64>(step.end_ns));
    } else {
      sqlite3_bind_null(s, 4);
      sqlite3_bind_null(s, 5);
    }
    for (std::size_t c = 0; c < kCauses; ++c) {
      sqlite3_bind_int64(s, kFixedColumns + 1 + static_cast<int>(c), static_cast<sqlite3_int64>(step.bytes.bytes[c]));
    }
    writer.insert(s);
  }
}

}  // namespace

void write_kernels_db(const std::filesystem::path& path, std::span<const StepRecord> steps) {
  AtomicFile file(path);
  {
    Writer writer(file.part(), path);
    // The file is synchronised and renamed as a whole, so the database needs no journal of its own.
    writer.run("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN;");
    writer.run(create_steps());
    writer.run(kTables);
    insert_steps(writer, steps);
    writer.run("COMMIT;");
  }
  file.commit();
}

Result<std::vector<std::pair<std::uint64_t, std::uint64_t>>> read_step_times(const std::filesystem::path& path) {
  const Result<Database> database = open_database(path, SQLITE_OPEN_READONLY);
  if (!database) return failure("{}", database.error());
  sqlite3* db = database.value().get();
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(db, "SELECT start_ns, end_ns FROM kvroof_step ORDER BY step", -1, &raw, nullptr) !=
      SQLITE_OK) {
    return failure("{}", sqlite3_errmsg(db));
  }
  const Statement statement(raw);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> times;
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    times.emplace_back(static_cast<std::uint64_t>(sqlite3_column_int64(raw, 0)),
                       static_cast<std::uint64_t>(sqlite3_column_int64(raw, 1)));
  }
  if (code != SQLITE_DONE) return failure("{}", sqlite3_errmsg(db));
  return times;
}

}  // namespace kvroof
