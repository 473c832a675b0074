#include "analysis/published.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "sim/core/csv.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

struct TextColumn {
  std::string_view name;
  std::string PublishedRow::* field;
  bool needed = true;
};
constexpr std::array kTextColumns = {
    TextColumn{"row_id", &PublishedRow::id},
    TextColumn{"level", &PublishedRow::level},
    TextColumn{"model_or_op", &PublishedRow::model},
    TextColumn{"weight_precision", &PublishedRow::weight_precision},
    TextColumn{"kv_precision", &PublishedRow::kv_precision},
    TextColumn{"gpu", &PublishedRow::gpu},
    TextColumn{"engine", &PublishedRow::engine},
    TextColumn{"batch_mode", &PublishedRow::batch_mode},
    TextColumn{"batch", &PublishedRow::batch},
    TextColumn{"input_len", &PublishedRow::input},
    TextColumn{"output_len", &PublishedRow::output},
    TextColumn{"metric", &PublishedRow::metric},
    TextColumn{"unit", &PublishedRow::unit},
    TextColumn{"source", &PublishedRow::source},
    TextColumn{"parallelism", &PublishedRow::parallelism, false},
    TextColumn{"conditions", &PublishedRow::conditions, false},
    TextColumn{"engine_version", &PublishedRow::engine_version, false},
};

// Why the fields are no row, or nothing.
std::string fill(const CsvRow& fields, PublishedRow& row) {
  for (const TextColumn& column : kTextColumns) row.*column.field = fields[column.name];
  const std::string& value = fields["value"];
  const auto number = parse_number<double>(value);
  if (!value.empty() && !number) return fmt::format("value `{}` is no number", shown(value));
  if (number && !(*number >= 0 && std::isfinite(*number))) {
    return fmt::format("value is {}, expected a number from 0 on", shown(value));
  }
  row.value = number;
  const std::string& gpus = fields["n_gpus"];
  const auto devices = parse_number<std::uint32_t>(gpus);
  if (!gpus.empty() && !devices) return fmt::format("n_gpus `{}` is no number", shown(gpus));
  row.gpus = devices.value_or(row.gpus);
  const bool says_itself = row.metric == "fits_in_memory";  // 0 or 1
  return row.unit.empty() && !says_itself ? "it has no unit" : "";
}

}  // namespace

Result<std::vector<PublishedRow>> published_rows(std::string_view csv) {
  Result<CsvReader> table = CsvReader::open(csv);
  if (!table) return Failure{table.error()};
  std::vector<std::string_view> needed;
  for (const TextColumn& column : kTextColumns) {
    if (column.needed) needed.push_back(column.name);
  }
  needed.insert(needed.end(), {"n_gpus", "value"});
  if (auto problem = table.value().require(needed)) return *problem;
  std::vector<PublishedRow> rows;
  const auto read = [&](const CsvRow& fields) { return fill(fields, rows.emplace_back()); };
  if (auto problem = table.value().for_each_row(read)) return *problem;
  return rows;
}

}  // namespace kvroof
