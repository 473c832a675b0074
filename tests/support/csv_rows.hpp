// Rows of CSV that the program prints, held against its JSON.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/run_program.hpp"

namespace kvroof::test {

using Row = std::map<std::string, std::string>;  // by column

inline std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// `words` are a command and its options; it has to end with `code`.
inline std::vector<Row> rows_of(const std::string& words, int code = 0) {
  const Ran ran = run_program(words + " --format csv");
  INFO(ran.err);
  REQUIRE(ran.code == code);
  std::istringstream text(ran.out);
  std::string line;
  std::getline(text, line);
  const std::vector<std::string> keys = fields_of(line);
  std::vector<Row> rows;
  while (std::getline(text, line)) {
    const std::vector<std::string> fields = fields_of(line);
    REQUIRE(fields.size() == keys.size());
    Row& row = rows.emplace_back();
    for (std::size_t c = 0; c < keys.size(); ++c) row[keys[c]] = fields[c];
    REQUIRE(row.size() == keys.size());  // no name twice
  }
  return rows;
}

inline void check_interval(const Row& row, const std::string& key, const nlohmann::json& interval) {
  INFO(key);
  CHECK(std::stod(row.at(key)) == Approx(interval["value"].get<double>()));
  for (const char* end : {"low80", "high80", "low95", "high95"}) {
    CHECK(std::stod(row.at(key + "_" + end)) == Approx(interval[end].get<double>()));
  }
}

using Cells = std::map<std::string, nlohmann::json>;

// What a row of JSON has as columns: nested keys are joined by _, those of a time before its unit; an estimate is its
// value and its ends, of which those of x_interval are x's. Arrays have no column.
inline void flatten(const std::string& key, const nlohmann::json& value, Cells& cells) {
  if (value.is_array()) return;
  if (!value.is_object()) {
    cells[key] = value;
    return;
  }
  const std::size_t interval = key.rfind("_interval"), unit = key.rfind("_ms");
  for (const auto& [name, part] : value.items()) {
    if (key.empty()) {
      flatten(name, part, cells);
    } else if (value.contains("low80")) {
      if (name != "value") cells[key.substr(0, interval) + "_" + name] = part;
      if (name == "value" && interval == std::string::npos) cells[key] = part;
    } else if (unit != std::string::npos && unit + 3 == key.size()) {
      flatten(key.substr(0, unit) + "_" + name + "_ms", part, cells);
    } else {
      flatten(key + "_" + name, part, cells);
    }
  }
}

// Every cell is the value of the JSON row, which has no other values: empty cells are its nulls, or parts of what is
// null as a whole.
inline void check_row(const Row& row, const nlohmann::json& said) {
  Cells cells;
  flatten("", said, cells);
  for (const auto& [key, text] : row) {
    INFO(key << " is '" << text << "'");
    const nlohmann::json value = cells.contains(key) ? cells[key] : nlohmann::json();
    if (value.is_number()) {
      CHECK((!text.empty() && std::stod(text) == value.get<double>()));
    } else if (value.is_boolean()) {
      CHECK(text == (value.get<bool>() ? "yes" : "no"));
    } else {
      CHECK(text == (value.is_null() ? "" : value.get<std::string>()));
    }
    cells.erase(key);
  }
  for (const auto& [key, value] : cells) {
    INFO(key);
    CHECK(value.is_null());
  }
}

// Takes the object at `key`, if there is one, out of a row and its parts into it.
inline void unnest(nlohmann::json& row, const std::string& key) {
  const nlohmann::json parts = row.value(key, nlohmann::json());
  row.erase(key);
  if (parts.is_object()) row.update(parts);
}

}  // namespace kvroof::test
