#include "analysis/scoreboard_markdown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "analysis/analysis.hpp"

namespace kvroof {
namespace {

// Engines with fewer rows of a kind are one line of the summary; it does not name failing groups of so few.
constexpr std::size_t kFewRows = 10;
constexpr std::size_t kFewFailing = 5;
constexpr std::string_view kOthers = "others";

// What the tables call the kinds of metric, in the order of the summary.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kTitles = {
    {{"step", "decode step"},
     {"saturated", "saturated server"},
     {"whole", "whole answers"},
     {"prompt", "first token"},
     {"short prompt", "first token"},
     {"first token", "first token under load"},
     {"memory", "memory"},
     {"product", "matrix products"},
     {"attention", "decode attention"},
     {"states", "updates of states"},
     {"element-wise", "element-wise kernels"}}};

std::string_view title_of(const RowKind& kind) {
  const auto title = std::ranges::find(kTitles, kind.metric, [](const auto& t) { return t.first; });
  check(title != kTitles.end(), "every kind of metric has a title");
  return title->second;
}

std::size_t place_of(std::string_view title) {
  const auto found = std::find_if(kTitles.begin(), kTitles.end(), [&](const auto& t) { return t.second == title; });
  return static_cast<std::size_t>(found - kTitles.begin());
}

bool of_kernel(const PublishedRow& row) { return row.level == "kernel"; }

// Of one board and of several of the same kind.
std::string board_of(const PublishedRow& row) {
  return row.gpu.substr(0, row.gpu.find('@')) + (row.gpus > 1 ? ", several" : "");
}

std::string figures_of(const GroupScore& g) {
  return fmt::format("{} | {} | {} | {:+.1f} % | {:.0f} % | {:.0f} %", g.rows, percent_text(g.mean_error, 1),
                     percent_text(g.p90_error, 1), 100 * g.bias, 100 * g.covered80, 100 * g.covered95);
}

// The rows that count, each in the group that `group` names.
template <typename Name>
std::vector<ScoredRow> grouped(std::span<const ScoredRow> rows, const Name& group) {
  std::vector<ScoredRow> lines;
  for (const ScoredRow& row : rows) {
    if (row.compared()) lines.emplace_back(row).group = group(row);
  }
  return lines;
}

// Of boards with several rows where there are any: one row says little.
GroupScore worst_board(std::span<const ScoredRow> rows) {
  const auto boards = group_scores(grouped(rows, [](const ScoredRow& r) { return board_of(*r.row); }));
  return *std::max_element(boards.begin(), boards.end(), [](const GroupScore& a, const GroupScore& b) {
    return std::tuple(a.rows > 2, a.mean_error) < std::tuple(b.rows > 2, b.mean_error);
  });
}

struct SummaryLine {
  std::string_view what;
  std::string engine;
  GroupScore score, worst;
  // Kinds in the order of their titles, the most measured engine first, the others last.
  [[nodiscard]] auto rank() const { return std::tuple(place_of(what), engine == kOthers, ~score.rows); }
};

std::vector<SummaryLine> lines_of_summary(std::span<const ScoredRow> rows) {
  using Key = std::pair<std::string_view, std::string>;
  std::map<Key, std::vector<ScoredRow>> engines, lines;
  for (const ScoredRow& row : rows) {
    if (row.compared()) engines[{title_of(row.kind), of_kernel(*row.row) ? "" : row.row->engine}].push_back(row);
  }
  for (const auto& [key, own] : engines) {
    const bool few = own.size() < kFewRows && !key.second.empty();
    auto& line = lines[few ? Key(key.first, kOthers) : key];
    line.insert(line.end(), own.begin(), own.end());
  }
  std::vector<SummaryLine> summary;
  for (const auto& [key, own] : lines) {
    const auto whole = group_scores(grouped(own, [](const ScoredRow&) { return std::string(); }));
    summary.push_back({key.first, key.second, whole.front(), worst_board(own)});
  }
  std::stable_sort(summary.begin(), summary.end(), [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
  return summary;
}

std::string failing_line(const GroupScore& g) {
  return fmt::format("- {}: {} ({} row{}, bias {:+.0f} %)\n", g.group, percent_text(g.mean_error, 1), g.rows,
                     g.rows == 1 ? "" : "s", 100 * g.bias);
}

// How many rows there are, how many groups of them fail, and each that has at least so many rows.
std::string failing_text(std::span<const ScoredRow> rows, std::size_t least_rows) {
  std::size_t counted = 0, failing = 0, failed = 0;
  std::string lines;
  for (const GroupScore& g : group_scores(rows)) {
    counted += g.rows;
    if (g.mean_error <= kFailingError) continue;
    ++failing;
    failed += g.rows;
    if (g.rows >= least_rows) lines += failing_line(g);
  }
  return fmt::format("\n{} rows, each group's intervals from the others. Known to fail, off by more than {:.0f} % on "
                     "average: {} groups with {} rows.{}\n\n",
                     counted, 100 * kFailingError, failing, failed,
                     least_rows > 1 ? fmt::format(" Those of {} rows and more:", least_rows) : "") +
         lines;
}

}  // namespace

std::string scoreboard_summary(std::span<const ScoredRow> rows) {
  std::string text = "| what | engine | rows | mean error | 90 % within | bias | in 80 % | in 95 % | furthest off |\n"
                     "|---|---|---|---|---|---|---|---|---|\n";
  for (const SummaryLine& line : lines_of_summary(rows)) {
    text += fmt::format("| {} | {} | {} | {}: {} |\n", line.what, line.engine.empty() ? "–" : line.engine,
                        figures_of(line.score), line.worst.group, percent_text(line.worst.mean_error, 1));
  }
  return text + failing_text(rows, kFewFailing);
}

std::string scoreboard_by_board(std::span<const ScoredRow> rows) {
  const std::vector<ScoredRow> lines = grouped(rows, [](const ScoredRow& r) {
    const std::string_view title = title_of(r.kind);
    const std::string who = of_kernel(*r.row) ? std::string(title) : fmt::format("{}, {}", r.row->engine, title);
    return fmt::format("{} | {}", who, board_of(*r.row));
  });
  std::string text = "| what | board | rows | mean error | 90 % within | bias | in 80 % | in 95 % |\n"
                     "|---|---|---|---|---|---|---|---|\n";
  for (const GroupScore& g : group_scores(lines)) text += fmt::format("| {} | {} |\n", g.group, figures_of(g));
  return text + failing_text(rows, 1);
}

Result<std::string> with_scoreboard(std::string_view document, std::span<const ScoredRow> rows) {
  const bool by_board = document.find(kByBoardBegin) != std::string_view::npos;
  const std::string_view opening = by_board ? kByBoardBegin : kSummaryBegin;
  const std::size_t begin = document.find(opening), end = document.find(kScoreboardEnd);
  for (const auto& [at, mark] : {std::pair{begin, opening}, std::pair{end, kScoreboardEnd}}) {
    const std::string_view shown = mark.substr(0, mark.size() - 1);
    if (at == std::string_view::npos) return failure("no line \"{}\" marks where the scoreboard goes", shown);
    if (document.find(mark, at + 1) != std::string_view::npos) return failure("the line \"{}\" is there twice", shown);
  }
  if (end < begin) return failure("the scoreboard's end is marked before its begin");
  std::string text(document.substr(0, begin + opening.size()));
  return text.append(by_board ? scoreboard_by_board(rows) : scoreboard_summary(rows)).append(document.substr(end));
}

}  // namespace kvroof
