// kvroof validate: the cost model against published measurements, as a scoreboard that anyone can make again.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/scoreboard.hpp"
#include "apps/command.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

std::string percent(double x) { return fmt::format("{:.1f} %", 100 * x); }

Table groups_table(const std::vector<GroupScore>& groups) {
  Table table;
  table.columns = {{"published rows", "group", false}, {"rows", "rows"},
                   {"mean error", "mean_error"},       {"90 % of rows within", "p90_error"},
                   {"bias", "bias"},                   {"inside 80 %", "covered80"},
                   {"inside 95 %", "covered95"}};
  for (const GroupScore& g : groups) {
    table.rows.push_back({g.group, std::to_string(g.rows), percent(g.mean_error), percent(g.p90_error),
                          fmt::format("{:+.1f} %", 100 * g.bias), fmt::format("{:.0f} %", 100 * g.covered80),
                          fmt::format("{:.0f} %", 100 * g.covered95)});
    const auto raw = [](double x) { return fmt::format("{}", x); };
    table.raw_rows.push_back({g.group, std::to_string(g.rows), raw(g.mean_error), raw(g.p90_error), raw(g.bias),
                              raw(g.covered80), raw(g.covered95)});
  }
  return table;
}

// Each row with its prediction.
Table rows_table(const std::vector<ScoredRow>& rows) {
  Table table;
  table.columns = {{"row", "row_id", false}, {"published rows", "group", false}, {"batch", "batch", false},
                   {"in", "input", false},   {"out", "output", false},           {"measured", "measured"},
                   {"predicted", "predicted"}, {"unit", "unit", false},          {"error", "error"},
                   {"80 %", "within80", false}};
  for (const ScoredRow& r : rows) {
    if (!r.predicted) continue;
    const auto& p = *r.row;
    table.rows.push_back({p.id, r.group, p.batch, p.input, p.output, fmt::format("{:g}", p.value),
                          fmt::format("{:.4g}", r.predicted->value), p.unit, fmt::format("{:+.1f} %", 100 * r.error()),
                          r.within80() ? "inside" : "outside"});
    table.raw_rows.push_back({p.id, r.group, p.batch, p.input, p.output, fmt::format("{}", p.value),
                              fmt::format("{}", r.predicted->value), p.unit, fmt::format("{}", r.error()),
                              r.within80() ? "true" : "false"});
  }
  return table;
}

std::map<std::string, std::size_t> refusals(const std::vector<ScoredRow>& rows) {
  std::map<std::string, std::size_t> reasons;
  for (const ScoredRow& r : rows) {
    if (!r.predicted) reasons[r.refused] += 1;
  }
  return reasons;
}

std::string summary_text(const std::vector<ScoredRow>& rows) {
  std::size_t predicted = 0, inside80 = 0, inside95 = 0;
  for (const ScoredRow& r : rows) {
    if (!r.predicted) continue;
    ++predicted;
    inside80 += r.within80() ? 1 : 0;
    inside95 += r.within95() ? 1 : 0;
  }
  const auto share = [&](std::size_t n) {
    return predicted > 0 ? 100.0 * static_cast<double>(n) / static_cast<double>(predicted) : 0;
  };
  std::string text = fmt::format(
      "{} of {} rows are predicted; {:.0f} % lie inside the 80 % interval, {:.0f} % inside the 95 % one\n", predicted,
      rows.size(), share(inside80), share(inside95));
  for (const auto& [reason, count] : refusals(rows)) text += fmt::format("not predicted: {:>4}  {}\n", count, reason);
  return text;
}

int run_validate(const Arguments& arguments) {
  const std::filesystem::path home = data_folder();
  const std::filesystem::path path = arguments.positional.empty() ? home / "validation" / "published.csv"
                                                                  : std::filesystem::path(arguments.positional[0]);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw usage_error(fmt::format("{}: cannot open", path.string()));
  const std::string csv{std::istreambuf_iterator<char>(file), {}};
  const std::vector<PublishedRow> published = published_rows(csv).or_throw(path.string());
  const Scoreboard scoreboard(home / "catalog");
  std::vector<ScoredRow> rows;
  for (const PublishedRow& row : published) rows.push_back(scoreboard.score(row));
  const Table table = arguments.get<bool>("rows") ? rows_table(rows) : groups_table(group_scores(rows));
  if (format_of(arguments) == Format::kTable) {
    write_result(arguments, format_table(table) + "\n" + summary_text(rows));
  } else {
    write_table(arguments, table);
    if (!arguments.quiet) fmt::print(stderr, "{}", summary_text(rows));
  }
  return 0;
}

void describe_validate(po::options_description_easy_init add) {
  add("rows", po::bool_switch(), "each row instead of the groups");
}

constexpr std::string_view kValidateExamples =
    "  kvroof validate\n"
    "  kvroof validate --rows --format csv > scoreboard.csv\n"
    "  kvroof validate my-measurements.csv";

}  // namespace

Command validate_command() {
  return {"validate", "the cost model against published measurements: errors and coverage of the intervals",
          "[FILE.csv] [options]", kValidateExamples, &describe_validate, &run_validate, 0, 1};
}

}  // namespace kvroof
