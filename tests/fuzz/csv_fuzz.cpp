// Fuzz target: any bytes as a table in CSV, whose fields are read again from a table that is written of them.
#include <cstdint>
#include <string_view>

#include "sim/core/csv.hpp"

namespace {

using namespace kvroof;

// As RFC 4180 writes it whatever is in it.
void append_quoted(std::string_view field, std::string& to) {
  to += '"';
  for (const char c : field) to += c == '"' ? std::string("\"\"") : std::string(1, c);
  to += '"';
}

struct Table {
  std::vector<std::vector<std::string>> rows;
  bool whole = false;

  explicit Table(std::string_view text, CsvReader::Comments comments) {
    Result<CsvReader> csv = CsvReader::open(text, comments);
    check(csv.ok() || (!csv.error().empty() && csv.error().size() < 1000), "a refusal is one sentence");
    if (!csv) return;
    CsvReader& reader = csv.value();
    const std::size_t columns = reader.columns().size();
    check(columns > 0, "a header has a column");
    for (std::size_t i = 0; i < columns; ++i) check(*reader.find(reader.columns()[i]) <= i, "a column is found");
    if (const auto twice = reader.require({})) check(twice->message.size() < 1000, "a refusal is one sentence");
    rows.emplace_back(reader.columns().begin(), reader.columns().end());
    const auto problem = reader.for_each_row([&](const CsvRow& row) {
      rows.emplace_back();
      for (std::size_t i = 0; i < columns; ++i) rows.back().push_back(row[i]);
      return std::string();
    });
    whole = !problem;
    check(whole || problem->message.starts_with("line "), "a refused row has a line");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto comments : {CsvReader::Comments::kNone, CsvReader::Comments::kHash}) {
    const Table table(text, comments);
    if (!table.whole) continue;
    std::string written;
    for (const auto& row : table.rows) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (i > 0) written += ',';
        append_quoted(row[i], written);
      }
      written += "\r\n";
    }
    const Table again(written, comments);
    check(again.whole && again.rows == table.rows, "what is written of a table is the table");
  }
  return 0;
}
