#include "analysis/served_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "sim/core/csv.hpp"
#include "sim/core/text.hpp"
#include "sim/cost/weight_format.hpp"
#include "sim/device/device.hpp"
#include "sim/model/model_shape.hpp"

namespace kvroof {
namespace {

std::optional<double> positive(const std::string& text) {
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) && *number > 0 ? number : std::nullopt;
}

constexpr std::array<std::string_view, 6> kTexts = {"experiment", "set", "device", "engine", "model", "dtype"};
constexpr std::array<std::string_view, 6> kNumbers = {"tp", "rate_per_s", "prompt", "output", "measured_ms",
                                                      "kvroof_ms"};

// One figure of one run, by the names of its columns.
struct Row {
  std::map<std::string_view, std::string> text;
  std::map<std::string_view, double> number;
  std::string metric;
};

// Reads the fields of a line, or says why they are no row.
std::string read_row(const CsvRow& fields, Row& row) {
  row.metric = fields["metric"];
  for (const std::string_view name : kTexts) row.text[name] = fields[name];
  for (const std::string_view name : kNumbers) {
    const auto number = positive(fields[name]);
    if (!number) return fmt::format("{} is `{}`, expected a number above 0", name, shown(fields[name]));
    row.number[name] = *number;
  }
  return "";
}

Result<std::vector<Row>> rows_of(std::string_view csv) {
  Result<CsvReader> table = CsvReader::open(csv, CsvReader::Comments::kHash);
  if (!table) return Failure{table.error()};
  std::vector<std::string_view> needed(kTexts.begin(), kTexts.end());
  needed.insert(needed.end(), kNumbers.begin(), kNumbers.end());
  needed.emplace_back("metric");
  if (auto problem = table.value().require(needed)) return *problem;
  std::vector<Row> rows;
  const auto read = [&](const CsvRow& fields) { return read_row(fields, rows.emplace_back()); };
  if (auto problem = table.value().for_each_row(read)) return *problem;
  return rows;
}

// The kind of a run, whose mean answer takes so many milliseconds; without its metric.
RowKind kind_of(const Row& row, double answer_ms, const std::filesystem::path& catalog) {
  const Device device = find_device(row.text.at("device"), catalog);
  const std::string& engine = row.text.at("engine");
  RowKind kind{std::string(name_of(device.memory_type)), engine.substr(0, engine.find('@')), "", device.name,
               {row.number.at("rate_per_s") * answer_ms / 1e3, row.number.at("prompt") + row.number.at("output"),
                row.number.at("tp")}};
  kind.family = architecture_family(device.architecture);
  const auto format = parse_weight_format(row.text.at("dtype"));
  kind.weights = format && format->quantised() ? std::string(format->name) : "16 bit";
  kind.experts = find_model_shape(row.text.at("model"), catalog).experts > 0;
  return kind;
}

}  // namespace

ServedState served_state(bool cold, bool experts) {
  if (!cold) return ServedState::kRunning;
  return experts ? ServedState::kColdExperts : ServedState::kCold;
}

std::string served_first_token_metric(ServedState state, std::string_view figure) {
  constexpr std::array<std::string_view, 3> kOf = {"", " of a first minute", " of experts' first minute"};
  return fmt::format("served first token {}{}", figure, kOf[static_cast<std::size_t>(state)]);
}

std::string served_answer_metric(ServedState state, std::string_view figure) {
  return fmt::format("served answer {}{}", figure,
                     state == ServedState::kColdExperts ? " of experts' first minute" : "");
}

Result<std::vector<Residual>> served_residuals(std::string_view csv, const std::filesystem::path& catalog) {
  const Result<std::vector<Row>> rows = rows_of(csv);
  if (!rows) return Failure{rows.error()};
  std::map<std::string, RowKind> kinds;  // of each run
  for (const Row& row : rows.value()) {
    if (row.metric == "e2e_mean") {
      kinds.emplace(row.text.at("experiment"), kind_of(row, row.number.at("measured_ms"), catalog));
    }
  }
  std::vector<Residual> residuals;
  for (const Row& row : rows.value()) {
    const bool first = row.metric.starts_with("ttft_");
    if (!first && !row.metric.starts_with("e2e_")) continue;
    const auto kind = kinds.find(row.text.at("experiment"));
    if (kind == kinds.end()) return failure("{}: it has no row of e2e_mean", row.text.at("experiment"));
    const std::string_view figure = std::string_view(row.metric).substr(row.metric.find('_') + 1);
    const ServedState state = served_state(row.text.at("set") == "first 300", kind->second.experts);
    Residual residual{kind->second, row.text.at("model")};
    residual.kind.metric = first ? served_first_token_metric(state, figure) : served_answer_metric(state, figure);
    const double measured = row.number.at("measured_ms"), predicted = row.number.at("kvroof_ms");
    residual.log_error = std::abs(std::log(measured / predicted));
    residual.late = (measured - predicted) / 1e3;
    residuals.push_back(std::move(residual));
  }
  return residuals;
}

}  // namespace kvroof
