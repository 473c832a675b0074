// Rows of published measurements as lines of a table, and what the catalog's scoreboard says of them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "analysis/scoreboard.hpp"
#include "tests/catch.hpp"

namespace kvroof {

inline constexpr const char* kRowHeader =
    "row_id,level,model_or_op,weight_precision,kv_precision,gpu,n_gpus,engine,batch_mode,batch,input_len,output_len,"
    "metric,value,unit,source\n";

// Lines under that header, each under the same conditions where any are given.
inline std::vector<PublishedRow> rows_of(const std::string& lines, const std::string& conditions = "") {
  std::string text, field = ",conditions";
  for (const char c : kRowHeader + lines) {
    if (c == '\n' && !conditions.empty()) text += std::exchange(field, "," + conditions);
    text += c;
  }
  return published_rows(text).or_throw("rows");
}
inline const Scoreboard& scoreboard() {
  static const Scoreboard board(std::filesystem::path(KVROOF_SOURCE_DIR) / "catalog");
  return board;
}
inline ScoredRow score(const PublishedRow& row) { return scoreboard().score(row); }

// A prediction for one row; the row must be supported.
inline double predicted(const std::string& line, const std::string& conditions = "") {
  const auto rows = rows_of(line, conditions);
  const ScoredRow scored = score(rows[0]);
  INFO(line << scored.refused);
  REQUIRE(scored.predicted);
  return scored.predicted->value;
}

}  // namespace kvroof
