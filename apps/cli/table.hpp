// Rows for people and for programs: a table that fits the terminal, CSV and JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvroof {

// A result as rows: fits the terminal as a table, or JSON (an array of objects), or CSV.
struct Table {
  struct Column {
    std::string title;  // for people, with the unit: "KV read (GiB)"
    std::string key;    // for JSON and CSV, with the unit: "kv_read_bytes"
    bool number = true;
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;      // for people
  std::vector<std::vector<std::string>>
      raw_rows;  // JSON and CSV: full precision; empty text is null; empty vector: rows
};
// A paragraph in lines that fit the page, each behind `indent` spaces.
std::string format_paragraph(const std::string& text, std::size_t indent);
std::string format_table(const Table& table);
std::string format_csv(const Table& table);
std::string format_json_rows(const Table& table);  // numbers unquoted
std::string csv_field(std::string_view text);  // quoted where it must be

}  // namespace kvroof
