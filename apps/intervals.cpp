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

namespace {

// How the widths of the constants are scaled, and what that is limited by.
std::string scaled_text(const IntervalFactors& f) {
  std::string text = fmt::format("× {:.2f} at 80 %, × {:.2f} at 95 %", f.factor80, f.factor95);
  if (f.never_narrower) text += ", no narrower than unscaled";
  if (f.error80 < IntervalFactors::kNoLimit) {
    text += fmt::format(", no wider than those rows are off (factors of {:.2f} and {:.2f}) or unscaled",
                        std::exp(f.error80), std::exp(f.error95));
  }
  return f.beyond.empty() ? text : text + "; then widened: " + f.beyond;
}

constexpr const char* kIntervalsOfSteps =
    "intervals of a step: the uncertainty of its constants, scaled so that it holds for like measured rows";

}  // namespace

std::string interval_note(const IntervalFactors& f) {
  return fmt::format("{} ({}; `kvroof validate` scores them): {}", kIntervalsOfSteps, f.from, scaled_text(f));
}

std::vector<std::string> interval_notes(const std::vector<IntervalFactors>& groups) {
  if (groups.size() == 1) return {interval_note(groups.front())};
  std::vector<std::string> notes;
  if (!groups.empty()) notes.push_back(fmt::format("{} (`kvroof validate` scores them):", kIntervalsOfSteps));
  for (const IntervalFactors& f : groups) notes.push_back(fmt::format("{}: {}", f.from, scaled_text(f)));
  return notes;
}

}  // namespace kvroof
