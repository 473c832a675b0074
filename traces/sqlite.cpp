#include "traces/sqlite.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace kvroof {
namespace {

// Whether the filesystem of a file refuses locks, as those of networks and clusters may.
bool refuses_locks(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_len = 1;
  const bool refused = ::fcntl(file, F_SETLK, &lock) != 0 &&
                       (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL);
  ::close(file);
  return refused;
}

// SQLite takes every file for a busy one where locks are refused. Of ours only one process writes, and those of others
// are only read, so that both go without locks there.
Result<SqliteHandle> open_database(const std::filesystem::path& path, int flags) {
  if ((flags & SQLITE_OPEN_CREATE) != 0) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0) ::close(file);
  }
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_NOMUTEX,
                                   refuses_locks(path) ? "unix-none" : nullptr);
  SqliteHandle database(raw);
  if (code != SQLITE_OK) return failure("{}", sqlite3_errstr(code));
  return database;
}

bool is_of_content(int code) {
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR:  // a table or a column is not there, or is another
    case SQLITE_SCHEMA:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_FORMAT:
      return true;
    default:
      return false;
  }
}

}  // namespace

SqliteWriter::SqliteWriter(const std::filesystem::path& path, std::filesystem::path shown)
    : shown_(std::move(shown)),
      db_(open_database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
              .or_throw("cannot write " + shown_.string())) {}

void SqliteWriter::run(const std::string& sql) {
  require(sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr));
}

SqliteStatement SqliteWriter::prepare(const std::string& sql) {
  sqlite3_stmt* raw = nullptr;
  require(sqlite3_prepare_v2(db_.get(), sql.c_str(), -1, &raw, nullptr));
  return SqliteStatement(raw);
}

std::string SqliteWriter::text(const std::string& sql) {
  const SqliteStatement statement = prepare(sql);
  const int code = sqlite3_step(statement.get());
  require(code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code);
  const auto* value = reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), 0));
  if (value == nullptr && sqlite3_errcode(db_.get()) == SQLITE_NOMEM) require(SQLITE_NOMEM);
  return value == nullptr ? std::string() : std::string(value);
}

void SqliteWriter::finish_row(sqlite3_stmt* statement) {
  const int code = sqlite3_step(statement);
  require(code == SQLITE_DONE ? SQLITE_OK : code);
  require(sqlite3_reset(statement));
}

void SqliteWriter::require(int code) const {
  if (code == SQLITE_OK) return;
  const std::string reason = sqlite3_errmsg(db_.get());
  const std::string message = fmt::format("cannot write {}: {}", shown_.string(), reason);
  if (is_of_content(code)) throw DamagedDatabase(message, reason);
  throw Error(message);
}

Result<SqliteReader> SqliteReader::open(const std::filesystem::path& path) {
  Result<SqliteHandle> database = open_database(path, SQLITE_OPEN_READONLY);
  if (!database) return failure("{}", database.error());
  SqliteReader reader;
  reader.db_ = std::move(database).value();
  sqlite3_db_config(reader.handle(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(reader.handle(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  const auto schema = SqliteRows::select(reader, "SELECT count(*) FROM sqlite_schema");
  if (!schema) return failure("{}", schema.error());
  return reader;
}

bool SqliteReader::has_table(std::string_view table) const {
  auto rows = SqliteRows::select(*this, fmt::format("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '{}' "
                                                    "AND sql NOT LIKE 'CREATE VIRTUAL%'", table));
  return rows && rows.value().next();
}

bool SqliteReader::has_column(std::string_view table, std::string_view column) const {
  auto rows = SqliteRows::select(*this, fmt::format("SELECT 1 FROM pragma_table_info('{}') WHERE name = '{}'", table,
                                                    column));
  return rows && rows.value().next();
}

Result<SqliteRows> SqliteRows::select(const SqliteReader& from, const std::string& sql, std::uint64_t most_rows) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(from.handle(), sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) {
    return failure("{}", sqlite3_errmsg(from.handle()));
  }
  SqliteRows rows;
  rows.db_ = from.handle();
  rows.statement_.reset(raw);
  rows.left_ = most_rows;
  return rows;
}

bool SqliteRows::next() {
  if (problem_) return false;
  const int code = sqlite3_step(row());
  if (code == SQLITE_ROW && left_-- > 0) return true;
  if (code == SQLITE_ROW) problem_ = failure("a table shows more rows than the file has room for: it is damaged");
  if (code != SQLITE_ROW && code != SQLITE_DONE) problem_ = failure("{}", sqlite3_errmsg(db_));
  return false;
}

std::string_view SqliteRows::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(row(), column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(row(), column))};
}

}  // namespace kvroof
