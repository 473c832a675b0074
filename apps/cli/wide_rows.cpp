#include "apps/cli/wide_rows.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "apps/cli/table.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

Json emptied(Json value) {
  if (value.is_array()) return Json::array();
  if (!value.is_object()) return nullptr;
  for (Json& part : value) part = emptied(std::move(part));
  return value;
}

bool has_nothing(const Json& value) {
  return value.is_structured() ? std::all_of(value.begin(), value.end(), has_nothing) : value.is_null();
}

std::string nested_key(const std::string& key, const std::string& name) {
  constexpr std::string_view kUnit = "_ms";
  if (key.ends_with(kUnit)) return fmt::format("{}_{}{}", key.substr(0, key.size() - kUnit.size()), name, kUnit);
  return fmt::format("{}_{}", key, name);
}

std::string cell_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_number_float()) return value.is_null() ? "" : value.dump();
  const auto x = value.get<double>();
  return std::isfinite(x) ? fmt::format("{}", x) : "";
}

}  // namespace

nlohmann::ordered_json if_any(bool there, nlohmann::ordered_json value) {
  return there ? value : emptied(std::move(value));
}

nlohmann::ordered_json folded(nlohmann::ordered_json row) {
  for (Json& part : row) {
    if (part.is_object()) part = has_nothing(part) ? Json(nullptr) : folded(std::move(part));
  }
  return row;
}

void unnest(nlohmann::ordered_json& row, const std::string& key) {
  if (!row.contains(key)) return;
  const Json parts = row[key];
  row.erase(key);
  row.update(parts);
}

void WideRows::add(const std::string& key, std::string text) {
  const auto [column, added] = columns_.try_emplace(key, columns_.size());
  if (added) table_.columns.push_back({key, key});
  row_.resize(std::max(row_.size(), column->second + 1));
  row_[column->second] = std::move(text);
}

void WideRows::add_cells(const nlohmann::ordered_json& row) {
  for (const auto& [name, value] : row.items()) add_cells(name, value);
}

void WideRows::add_cells(const std::string& key, const nlohmann::ordered_json& value) {
  if (value.is_array()) return;
  if (!value.is_object()) return add(key, cell_text(value));
  if (value.contains("value")) return add_estimate(key, value);
  for (const auto& [name, part] : value.items()) add_cells(nested_key(key, name), part);
}

void WideRows::add_estimate(const std::string& key, const nlohmann::ordered_json& estimate) {
  constexpr std::string_view kBeside = "_interval";  // the value itself has a key, too
  const bool beside = key.ends_with(kBeside);
  const std::string figure = beside ? key.substr(0, key.size() - kBeside.size()) : key;
  for (const auto& [end, value] : estimate.items()) {
    if (end != "value") {
      add(fmt::format("{}_{}", figure, end), cell_text(value));
    } else if (!beside) {
      add(figure, cell_text(value));
    }
  }
}

void WideRows::end_row() { table_.rows.push_back(std::exchange(row_, {})); }

std::string WideRows::csv() const {
  Table table = table_;
  for (auto& row : table.rows) row.resize(columns_.size());
  return format_csv(table);
}

}  // namespace kvroof
