// Reading CSV: a header that names the columns, and rows whose fields are found by these names (RFC 4180).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace kvroof {

class CsvReader;

// The fields of one row, as many as the header has; valid until the next is read.
class CsvRow {
 public:
  [[nodiscard]] const std::string& operator[](std::size_t column) const { return fields_[column]; }
  // The field of a column; an empty text where the file has no such column.
  [[nodiscard]] const std::string& operator[](std::string_view column) const;

 private:
  friend class CsvReader;
  CsvRow(const CsvReader& reader, std::span<const std::string> fields) : reader_(reader), fields_(fields) {}

  const CsvReader& reader_;
  std::span<const std::string> fields_;
};

// What is read: UTF-8, with or without the mark of it; lines that end in LF or CRLF, the last also in nothing. A field
// that begins with a quote holds commas, ends of lines and, doubled, quotes; elsewhere a quote is a letter. Unquoted
// blanks at both ends of a field are none of it. Blank lines are skipped wherever they are.
//
// Failures are one sentence that begins with the line of the file, counted from 1.
class CsvReader {
 public:
  enum class Comments : std::uint8_t { kNone, kHash };  // kHash: lines that begin with # are skipped

  // Reads the header; `text` must outlive the reader. Fails where there is none, for UTF-16, and for fields that
  // semicolons or tabs separate.
  static Result<CsvReader> open(std::string_view text, Comments comments = Comments::kNone);

  [[nodiscard]] std::span<const std::string> columns() const { return columns_; }
  // The place of a column: the first of that name.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view column) const;
  // Why the table is refused by who needs these columns: some are missing, or a name is there twice.
  [[nodiscard]] std::optional<Failure> require(std::span<const std::string_view> columns) const;

  // Hands the rows over in their order. The first row that is none, or for which `use` returns what is wrong with it
  // (an empty text: nothing), is the last: the failure says it behind the row's line.
  std::optional<Failure> for_each_row(const std::function<std::string(const CsvRow&)>& use);

 private:
  CsvReader(std::string_view text, Comments comments) : text_(text), comments_(comments) {}

  bool next_record();
  bool read_field(std::string& field);
  bool read_quoted(std::string& field);
  [[nodiscard]] Failure at_line(std::size_t line, std::string_view problem) const;

  std::string_view text_;
  Comments comments_;
  std::size_t at_ = 0;           // the next byte
  std::size_t line_ = 1;         // which it is in
  std::size_t record_line_ = 1;  // in which the last record began
  std::size_t open_quote_ = 0;   // the line of a quote that is never closed; 0: there is none
  std::vector<std::string> fields_;  // of the last record: the first `count_`; the others keep their memory
  std::size_t count_ = 0;
  std::size_t header_line_ = 1;
  std::vector<std::string> columns_;
};

}  // namespace kvroof
