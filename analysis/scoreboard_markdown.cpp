#include "analysis/scoreboard_markdown.hpp"

#include <fmt/format.h>

#include <map>
#include <vector>

namespace kvroof {
namespace {

// What the lines of the table call the kinds of metric.
const std::map<std::string, std::string>& titles() {
  static const std::map<std::string, std::string> kTitles = {
      {"step", "decode step"},         {"whole", "whole answers"},      {"saturated", "saturated server"},
      {"prompt", "first token"},       {"memory", "memory"},            {"first token", "first token under load"},
      {"short prompt", "first token"},
      {"product", "matrix products"},  {"attention", "decode attention"}};
  return kTitles;
}

// Tables of one engine, kind and device are one line; those of one device and of several are two.
std::string line_of(const ScoredRow& scored) {
  const PublishedRow& row = *scored.row;
  const std::string device = row.gpu.substr(0, row.gpu.find('@'));
  const std::string what = titles().at(scored.kind.metric);
  const std::string who = row.level == "kernel" ? what : fmt::format("{}, {}", row.engine, what);
  return fmt::format("{} | {}{}", who, device, row.gpus > 1 ? ", several" : "");
}

std::string percent(double x) { return fmt::format("{:.1f} %", 100 * x); }

}  // namespace

std::string scoreboard_markdown(std::span<const ScoredRow> rows, double failing) {
  std::vector<ScoredRow> lines(rows.begin(), rows.end());
  for (ScoredRow& row : lines) {
    if (row.compared()) row.group = line_of(row);
  }
  std::string text = "| what | device | rows | mean error | 90 % within | bias | in 80 % | in 95 % |\n"
                     "|---|---|---|---|---|---|---|---|\n";
  std::size_t counted = 0;
  for (const GroupScore& g : group_scores(lines)) {
    text += fmt::format("| {} | {} | {} | {} | {:+.1f} % | {:.0f} % | {:.0f} % |\n", g.group, g.rows,
                        percent(g.mean_error), percent(g.p90_error), 100 * g.bias, 100 * g.covered80,
                        100 * g.covered95);
    counted += g.rows;
  }
  text += fmt::format("\n{} rows, each group's intervals from the others. Known to fail (off by more than {:.0f} % on "
                      "average):\n\n", counted, 100 * failing);
  for (const GroupScore& g : group_scores(rows)) {
    if (g.mean_error <= failing) continue;
    text += fmt::format("- {}: {} ({} row{}, bias {:+.0f} %)\n", g.group, percent(g.mean_error), g.rows,
                        g.rows == 1 ? "" : "s", 100 * g.bias);
  }
  return text;
}

Result<std::string> with_scoreboard(std::string_view document, std::string_view markdown) {
  const std::size_t begin = document.find(kScoreboardBegin), end = document.find(kScoreboardEnd);
  for (const auto& [at, mark] : {std::pair{begin, kScoreboardBegin}, std::pair{end, kScoreboardEnd}}) {
    const std::string_view shown = mark.substr(0, mark.size() - 1);
    if (at == std::string_view::npos) return failure("no line \"{}\" marks where the scoreboard goes", shown);
    if (document.find(mark, at + 1) != std::string_view::npos) return failure("the line \"{}\" is there twice", shown);
  }
  if (end < begin) return failure("the scoreboard's end is marked before its begin");
  std::string text(document.substr(0, begin + kScoreboardBegin.size()));
  return text.append(markdown).append(document.substr(end));
}

}  // namespace kvroof
