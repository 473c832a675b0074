// Results for programs: a row is made once, as JSON, and flattened into as many named cells as it takes for CSV.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/cli/table.hpp"

namespace kvroof {

// The value, or its keys without values where there is none: rows have the same columns, whatever they lack.
nlohmann::ordered_json if_any(bool there, nlohmann::ordered_json value);
// The row as JSON says it: an object without any value is one null.
nlohmann::ordered_json folded(nlohmann::ordered_json row);
// Takes the object at `key`, if there is one, out of a row and its parts into it.
void unnest(nlohmann::ordered_json& row, const std::string& key);

// A row adds its keys once each; one that earlier rows lack becomes a last column, empty in theirs.
class WideRows {
 public:
  void add(const std::string& key, std::string text);
  template <class Number>
    requires std::integral<Number> || std::floating_point<Number>
  void add(const std::string& key, Number x) {
    add(key, fmt::format("{}", x));
  }
  // An empty cell where there is none.
  template <class Number>
  void add(const std::string& key, const std::optional<Number>& x) {
    add(key, x ? fmt::format("{}", *x) : std::string());
  }
  // Keys of what is nested are joined by _ (of times before their unit, ttft_p99_ms), but the value of an estimate has
  // the key of the estimate. An object called x_interval has the ends of x. Nulls, and numbers that JSON has no digits
  // for, are empty cells; arrays are left out.
  void add_cells(const nlohmann::ordered_json& row);
  void add_cells(const std::string& key, const nlohmann::ordered_json& value);
  void end_row();

  [[nodiscard]] std::string csv() const;

 private:
  void add_estimate(const std::string& key, const nlohmann::ordered_json& estimate);

  Table table_;
  std::unordered_map<std::string, std::size_t> columns_;  // by key
  std::vector<std::string> row_;
};

}  // namespace kvroof
