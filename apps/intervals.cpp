#include "apps/intervals.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "apps/command.hpp"

namespace kvroof {

namespace fs = std::filesystem;

std::vector<PublishedRow> read_published_rows(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) throw usage_error(path.string() + ": a folder, expected a file of rows");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw usage_error(fmt::format("{}: cannot open: {}", path.string(), std::strerror(errno)));
  const std::string csv{std::istreambuf_iterator<char>(file), {}};
  return published_rows(csv).or_throw(path.string(), ExitCode::kUsage);
}

fs::path shipped_rows() { return data_folder() / "validation" / "published.csv"; }

std::vector<ScoredRow> score_rows(const std::vector<PublishedRow>& rows) {
  const Scoreboard scoreboard(data_folder() / "catalog");
  std::vector<ScoredRow> scored;
  scored.reserve(rows.size());
  for (const PublishedRow& row : rows) scored.push_back(scoreboard.score(row));
  return scored;
}

const IntervalTable& shipped_intervals() {
  static const IntervalTable table = [] {
    const std::vector<PublishedRow> rows = read_published_rows(shipped_rows());
    return interval_table(score_rows(rows));
  }();
  return table;
}

IntervalGroup interval_group(const Device& device, const CostModel& cost, const std::string& metric) {
  RowKind kind{std::string(name_of(device.memory_type)), cost.engine().name, metric, device.name, {}};
  set_weights(kind, cost.shape(), cost.deployment());
  return shipped_intervals().group(kind);
}

std::string interval_note(const IntervalFactors& f) {
  const std::string beyond = f.beyond.empty() ? "" : "; after that, beyond those rows: " + f.beyond;
  std::string limit;
  if (f.never_narrower) limit = ", no narrower than the priors";
  if (f.error80 < IntervalFactors::kNoLimit) {
    limit += fmt::format(
        ", but no wider than the priors or those rows' errors (factors of {:.2f} and {:.2f}), whichever are wider",
        std::exp(f.error80), std::exp(f.error95));
  }
  return fmt::format(
      "intervals of a step: the priors' widths times {:.2f} (80 %) and {:.2f} (95 %), as like measured rows ask for "
      "({}){}{}; `kvroof validate` shows those rows",
      f.factor80, f.factor95, f.from, limit, beyond);
}

}  // namespace kvroof
