// Scoreboard: the cost model against published measurements, row by row, and the error of each group of them.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/published.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

struct ScoredRow {
  const PublishedRow* row = nullptr;
  std::string group;                  // what, model, device, engine: neighbours in one published table
  std::optional<Estimate> predicted;  // in the row's unit
  std::string refused;                // why nothing is predicted

  // (predicted − measured) / measured.
  [[nodiscard]] double error() const { return predicted->value / row->value - 1; }
  [[nodiscard]] bool within80() const { return row->value >= predicted->low80 && row->value <= predicted->high80; }
  [[nodiscard]] bool within95() const { return row->value >= predicted->low95 && row->value <= predicted->high95; }
};

// Scores a row with the devices and models of the catalog. Nothing of a row but its conditions enters a prediction.
class Scoreboard {
 public:
  explicit Scoreboard(std::filesystem::path catalog) : catalog_(std::move(catalog)) {}
  [[nodiscard]] ScoredRow score(const PublishedRow& row) const;

 private:
  std::filesystem::path catalog_;
};

struct GroupScore {
  std::string group;
  std::size_t rows = 0;
  double mean_error = 0;      // of the absolute relative errors
  double p90_error = 0;       // nine of ten rows have at most this
  double bias = 0;            // mean of the signed ones
  double covered80 = 0, covered95 = 0;  // shares of rows inside their intervals
};

// Of the predicted rows, by group in the order of their first row.
std::vector<GroupScore> group_scores(std::span<const ScoredRow> rows);

}  // namespace kvroof
