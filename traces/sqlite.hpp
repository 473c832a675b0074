// SQLite files, written by prepared rows and read one row at a time.
#pragma once

#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "sim/core/error.hpp"

namespace kvroof {

struct CloseDatabase {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
};
struct FinishStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using SqliteHandle = std::unique_ptr<sqlite3, CloseDatabase>;
using SqliteStatement = std::unique_ptr<sqlite3_stmt, FinishStatement>;

// What is in a database keeps it from being written, and would at any time: its pages are damaged, or its tables are
// others. Of a full disk, or of what is not allowed, this does not tell.
class DamagedDatabase : public Error {
 public:
  DamagedDatabase(const std::string& message, std::string reason) : Error(message), reason_(std::move(reason)) {}
  [[nodiscard]] const std::string& reason() const { return reason_; }  // in SQLite's words

 private:
  std::string reason_;
};

// A database that one thread writes. Every failure is an Error with the path that is shown to people, a DamagedDatabase
// where the content is at fault.
class SqliteWriter {
 public:
  SqliteWriter(const std::filesystem::path& path, std::filesystem::path shown);

  void run(const std::string& sql);
  SqliteStatement prepare(const std::string& sql);
  // The first value of the first row that a query gives; empty where it gives none.
  std::string text(const std::string& sql);

  // Inserts one row: integers, floating point, text (valid for the call), nullptr or an empty optional for NULL.
  template <class... Values>
  void insert(sqlite3_stmt* statement, const Values&... values) {
    int column = 0;
    (bind(statement, ++column, values), ...);
    finish_row(statement);
  }

 private:
  static void bind(sqlite3_stmt* s, int column, std::nullptr_t) { sqlite3_bind_null(s, column); }
  static void bind(sqlite3_stmt* s, int column, double value) { sqlite3_bind_double(s, column, value); }
  static void bind(sqlite3_stmt* s, int column, std::string_view text) {
    // No address would be NULL, and a text that is empty is not.
    sqlite3_bind_text(s, column, text.empty() ? "" : text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  }
  template <std::integral T>
  static void bind(sqlite3_stmt* s, int column, T value) {
    sqlite3_bind_int64(s, column, static_cast<sqlite3_int64>(value));
  }
  template <class T>
  static void bind(sqlite3_stmt* s, int column, const std::optional<T>& value) {
    if (value) {
      bind(s, column, *value);
    } else {
      sqlite3_bind_null(s, column);
    }
  }
  void finish_row(sqlite3_stmt* statement);
  void require(int code) const;

  std::filesystem::path shown_;
  SqliteHandle db_;
};

// A database of someone's, opened for reading only; nothing in its schema may run code.
class SqliteReader {
 public:
  static Result<SqliteReader> open(const std::filesystem::path& path);

  [[nodiscard]] bool has_table(std::string_view table) const;  // an ordinary table; views do not count
  [[nodiscard]] bool has_column(std::string_view table, std::string_view column) const;
  [[nodiscard]] sqlite3* handle() const { return db_.get(); }

 private:
  SqliteHandle db_;
};

// The rows of a query. A b-tree of a damaged or forged file can show the same pages again and again; a query therefore
// ends with a problem once it gave more rows than `most_rows`.
class SqliteRows {
 public:
  static Result<SqliteRows> select(const SqliteReader& from, const std::string& sql,
                                   std::uint64_t most_rows = UINT64_MAX);

  bool next();  // false at the end, and where there is a problem
  [[nodiscard]] const std::optional<Failure>& problem() const { return problem_; }
  [[nodiscard]] bool null(int column) const { return sqlite3_column_type(row(), column) == SQLITE_NULL; }
  [[nodiscard]] std::int64_t integer(int column) const { return sqlite3_column_int64(row(), column); }
  [[nodiscard]] std::uint64_t u64(int column) const { return static_cast<std::uint64_t>(integer(column)); }
  [[nodiscard]] std::uint32_t u32(int column) const { return static_cast<std::uint32_t>(integer(column)); }
  [[nodiscard]] double number(int column) const { return sqlite3_column_double(row(), column); }
  // Valid until the next row.
  [[nodiscard]] std::string_view text(int column) const;
  [[nodiscard]] int columns() const { return sqlite3_column_count(row()); }
  [[nodiscard]] std::string_view column_name(int column) const { return sqlite3_column_name(row(), column); }
  [[nodiscard]] int type(int column) const { return sqlite3_column_type(row(), column); }

 private:
  [[nodiscard]] sqlite3_stmt* row() const { return statement_.get(); }
  sqlite3* db_ = nullptr;
  SqliteStatement statement_;
  std::uint64_t left_ = 0;
  std::optional<Failure> problem_;
};

}  // namespace kvroof
