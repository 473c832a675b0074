// Scoreboard: the cost model against published measurements, row by row, and the error of each group of them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/conformal.hpp"
#include "analysis/published_setting.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

struct ScoredRow {
  const PublishedRow* row = nullptr;
  std::string group;                  // what, model, device, engine: neighbours in one published table
  std::optional<Estimate> predicted;  // in the row's unit
  std::string refused;                // why nothing is predicted
  RowKind kind;                       // of what is predicted
  std::string doubt;                  // why the measurement cannot be what it says: predicted, not counted
  std::string width_from;             // which rows or priors the interval is from

  // Predicted, and measured as more than 0 without a doubt.
  [[nodiscard]] bool compared() const { return predicted && row->value && *row->value > 0 && doubt.empty(); }
  // (predicted − measured) / measured.
  [[nodiscard]] double error() const { return predicted->value / *row->value - 1; }
  [[nodiscard]] bool within80() const { return *row->value >= predicted->low80 && *row->value <= predicted->high80; }
  [[nodiscard]] bool within95() const { return *row->value >= predicted->low95 && *row->value <= predicted->high95; }
};

// Scores a row with the devices and models of the catalog. Nothing of a row but its conditions enters a prediction.
class Scoreboard {
 public:
  explicit Scoreboard(const std::filesystem::path& catalog) : catalog_(catalog) {}
  // With the interval that follows from the priors.
  [[nodiscard]] ScoredRow score(const PublishedRow& row) const;

 private:
  PublishedCatalog catalog_;
};

// Intervals from the compared rows among `measured`. Values of the rows that get intervals are not looked at.
IntervalTable interval_table(std::span<const ScoredRow> measured);

// What is as if it had not been measured when a row gets its interval: the table that it is of; or all tables of its
// device, of its engine, or of its device under its engine.
enum class LeftOut : std::uint8_t { kNothing, kTable, kDevice, kEngine, kDeviceAndEngine };
inline constexpr std::array<std::string_view, 5> kLeftOutNames = {"nothing", "table", "device", "engine",
                                                                  "device-engine"};
// Moves the intervals to those of the table; without what is left out, the rows are none of the table's own.
void set_intervals(std::span<ScoredRow> rows, const IntervalTable& table, std::optional<LeftOut> left_out = {});

struct GroupScore {
  std::string group;
  std::size_t rows = 0;
  double mean_error = 0;      // of the absolute relative errors
  double p90_error = 0;       // nine of ten rows have at most this
  double bias = 0;            // mean of the signed ones
  double covered80 = 0, covered95 = 0;  // shares of rows inside their intervals
};

// What the shipped rows must show; a test and `kvroof validate` hold it.
struct Gate {
  std::string what;
  double value = 0, lowest = 0, highest = 0;
  [[nodiscard]] bool met() const { return value >= lowest && value <= highest; }
};
std::vector<Gate> gates_of(std::span<const ScoredRow> rows);
// Of `rows` with the intervals of their priors: the shares of them inside those that the others give.
std::vector<Gate> coverage_gates(std::span<const ScoredRow> rows);

// Of the predicted rows, by group in the order of their first row.
std::vector<GroupScore> group_scores(std::span<const ScoredRow> rows);

}  // namespace kvroof
