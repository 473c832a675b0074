#include "analysis/published.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

// Fields of the line that starts at `at`, which moves behind it; nothing for a quote that never ends.
std::optional<std::vector<std::string>> next_line(std::string_view csv, std::size_t& at) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (; at < csv.size(); ++at) {
    const char c = csv[at];
    if (quoted) {
      if (c != '"') {
        fields.back() += c;
      } else if (at + 1 < csv.size() && csv[at + 1] == '"') {
        fields.back() += '"';
        ++at;
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      fields.emplace_back();
    } else if (c == '\n') {
      ++at;
      return fields;
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  if (quoted) return std::nullopt;
  return fields;
}

struct TextColumn {
  std::string_view name;
  std::string PublishedRow::* field;
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
};

constexpr std::array kOptionalColumns = {
    TextColumn{"parallelism", &PublishedRow::parallelism},
    TextColumn{"conditions", &PublishedRow::conditions},
    TextColumn{"engine_version", &PublishedRow::engine_version},
};

// Columns by name.
class Header {
 public:
  explicit Header(std::vector<std::string> names) : names_(std::move(names)) {}
  [[nodiscard]] std::vector<std::string> missing() const {
    std::vector<std::string> names;
    for (const TextColumn& column : kTextColumns) names.emplace_back(column.name);
    names.insert(names.end(), {"n_gpus", "value"});
    std::erase_if(names, [&](const std::string& name) { return find(name).has_value(); });
    return names;
  }
  // A column that is there twice, or nothing.
  [[nodiscard]] std::string repeated() const {
    for (auto name = names_.begin(); name != names_.end(); ++name) {
      if (!name->empty() && std::find(name + 1, names_.end(), *name) != names_.end()) return *name;
    }
    return {};
  }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const {
    const auto at = std::find(names_.begin(), names_.end(), name);
    return at == names_.end() ? std::nullopt : std::optional(static_cast<std::size_t>(at - names_.begin()));
  }
  [[nodiscard]] std::size_t size() const { return names_.size(); }

 private:
  std::vector<std::string> names_;
};

// Which columns are missing from the first line, and whether that is because it is separated by something else.
std::string missing_text(const std::vector<std::string>& missing, std::string_view line) {
  for (const auto& [separator, name] : {std::pair(';', "semicolons"), std::pair('\t', "tabs")}) {
    if (line.find(',') != std::string_view::npos || line.find(separator) == std::string_view::npos) continue;
    return fmt::format("its fields are separated by {}, expected commas", name);
  }
  if (missing.size() == 1) return fmt::format("the column {} is missing", missing.front());
  return fmt::format("the columns {} are missing", join(missing));
}

// Why the fields are no row, or nothing.
std::string fill(const Header& header, const std::vector<std::string>& fields, PublishedRow& row) {
  if (fields.size() != header.size()) {
    return fmt::format("{} fields, but the header has {}", fields.size(), header.size());
  }
  for (const TextColumn& column : kTextColumns) row.*column.field = fields[*header.find(column.name)];
  for (const TextColumn& column : kOptionalColumns) {
    if (const auto at = header.find(column.name)) row.*column.field = fields[*at];
  }
  const std::string& value = fields[*header.find("value")];
  const auto number = parse_number<double>(value);
  if (!value.empty() && !number) return fmt::format("value `{}` is no number", value);
  if (number && !(*number >= 0 && std::isfinite(*number))) {
    return fmt::format("value is {}, expected a number from 0 on", value);
  }
  row.value = number;
  const std::string& gpus = fields[*header.find("n_gpus")];
  const auto devices = parse_number<std::uint32_t>(gpus);
  if (!gpus.empty() && !devices) return fmt::format("n_gpus `{}` is no number", gpus);
  row.gpus = devices.value_or(row.gpus);
  return row.unit.empty() ? "it has no unit" : "";
}

}  // namespace

Result<std::vector<PublishedRow>> published_rows(std::string_view csv) {
  constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";  // which spreadsheets write
  if (csv.starts_with("\xff\xfe") || csv.starts_with("\xfe\xff")) return Failure{"it is UTF-16, expected UTF-8"};
  if (csv.starts_with(kUtf8Mark)) csv.remove_prefix(kUtf8Mark.size());
  if (csv.empty()) return Failure{"the file is empty"};
  std::size_t at = 0;
  auto names = next_line(csv, at);
  if (!names) return Failure{"line 1: a quote is never closed"};
  const Header header(std::move(*names));
  if (const std::vector<std::string> missing = header.missing(); !missing.empty()) {
    return failure("line 1: {}", missing_text(missing, csv.substr(0, at)));
  }
  if (const std::string twice = header.repeated(); !twice.empty()) {
    return failure("line 1: the column {} is there twice", twice);
  }
  std::vector<PublishedRow> rows;
  for (std::size_t line = 2; at < csv.size(); ++line) {
    const auto fields = next_line(csv, at);
    if (!fields) return failure("line {}: a quote is never closed", line);
    if (fields->size() == 1 && fields->front().empty()) continue;  // an empty line
    PublishedRow row;
    const std::string problem = fill(header, *fields, row);
    if (!problem.empty()) return failure("line {}: {}", line, problem);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kvroof
