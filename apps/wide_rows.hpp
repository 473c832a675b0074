// Results for programs that read CSV: a row each, as many named cells as they take, an estimate with its interval.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apps/command.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

// A row adds its keys once each; one that earlier rows lack becomes a last column, empty in theirs.
class WideRows {
 public:
  void add(const std::string& key, std::string text) {
    const auto [column, added] = columns_.try_emplace(key, columns_.size());
    if (added) table_.columns.push_back({key, key});
    row_.resize(std::max(row_.size(), column->second + 1));
    row_[column->second] = std::move(text);
  }
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
  // key, then key_low80 … key_dominated_by, each multiplied by `scale`; empty cells for nothing.
  void add_estimate(const std::string& key, const Estimate* e, double scale) {
    add(key, e != nullptr ? fmt::format("{}", e->value * scale) : "");
    add_interval(key, e, scale);
  }
  // key_low80, key_high80, key_low95, key_high95 and what makes the interval wide, key_dominated_by.
  void add_interval(const std::string& key, const Estimate* e, double scale) {
    static constexpr std::pair<const char*, double Estimate::*> kEnds[] = {{"_low80", &Estimate::low80},
                                                                           {"_high80", &Estimate::high80},
                                                                           {"_low95", &Estimate::low95},
                                                                           {"_high95", &Estimate::high95}};
    for (const auto& [end, field] : kEnds) add(key + end, e != nullptr ? fmt::format("{}", e->*field * scale) : "");
    add(key + "_dominated_by", e != nullptr ? std::string(name_of(e->dominated_by)) : "");
  }
  void end_row() { table_.rows.push_back(std::exchange(row_, {})); }

  [[nodiscard]] std::string csv() const {
    Table table = table_;
    for (auto& row : table.rows) row.resize(columns_.size());
    return format_csv(table);
  }

 private:
  Table table_;
  std::unordered_map<std::string, std::size_t> columns_;  // by key
  std::vector<std::string> row_;
};

}  // namespace kvroof
