// kvroof validate: the cost model against published measurements, as a scoreboard that anyone can make again.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/analysis.hpp"
#include "analysis/papers.hpp"
#include "analysis/scoreboard.hpp"
#include "analysis/scoreboard_markdown.hpp"
#include "apps/cli/command.hpp"
#include "apps/cli/data_folder.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/intervals.hpp"
#include "apps/validate/validate_trace.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/files.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

namespace po = boost::program_options;

Table groups_table(const std::vector<GroupScore>& groups) {
  Table table;
  table.columns = {{"published rows", "group", false}, {"rows", "rows"},
                   {"mean error", "mean_error"},       {"90 % of rows within", "p90_error"},
                   {"bias", "bias"},                   {"inside 80 %", "covered80"},
                   {"inside 95 %", "covered95"}};
  for (const GroupScore& g : groups) {
    table.rows.push_back({g.group, std::to_string(g.rows), percent_text(g.mean_error, 1), percent_text(g.p90_error, 1),
                          fmt::format("{:+.1f} %", 100 * g.bias), fmt::format("{:.0f} %", 100 * g.covered80),
                          fmt::format("{:.0f} %", 100 * g.covered95)});
    const auto raw = [](double x) { return fmt::format("{}", x); };
    table.raw_rows.push_back({g.group, std::to_string(g.rows), raw(g.mean_error), raw(g.p90_error), raw(g.bias),
                              raw(g.covered80), raw(g.covered95)});
  }
  return table;
}

std::string raw(double x) { return fmt::format("{}", x); }

std::string widest_part(const ScoredRow& r) {
  return r.predicted ? std::string(name_of(r.predicted->dominated_by)) : std::string();
}

// Each row with its prediction in the row's own unit, or why there is none; for programs.
Table rows_csv(const std::vector<ScoredRow>& rows) {
  Table table;
  for (const char* key : {"row_id", "measured", "predicted", "low80", "high80", "low95", "high95", "unit", "error",
                          "group", "dominated_by", "interval_from", "unsupported"}) {
    table.columns.push_back({key, key});
  }
  for (const ScoredRow& r : rows) {
    const auto estimate = [&](double Estimate::* field) { return r.predicted ? raw(*r.predicted.*field) : ""; };
    table.rows.push_back({r.row->id, r.row->value ? raw(*r.row->value) : "", estimate(&Estimate::value),
                          estimate(&Estimate::low80), estimate(&Estimate::high80), estimate(&Estimate::low95),
                          estimate(&Estimate::high95), r.row->unit, r.compared() ? raw(r.error()) : "", r.group,
                          widest_part(r), r.width_from, r.refused});
  }
  return table;
}

// The same for people, on a page.
Table rows_table(const std::vector<ScoredRow>& rows) {
  Table table;
  table.columns = {{"row", "", false},       {"measured", ""},    {"predicted", ""},
                   {"80 % interval", ""},    {"95 % interval", ""}, {"unit", "", false},
                   {"error", ""},            {"inside", "", false}, {"of what, or why there is none", "", false}};
  for (const ScoredRow& r : rows) {
    const std::string measured = r.row->value ? fmt::format("{:g}", *r.row->value) : "–";
    if (!r.predicted) {
      table.rows.push_back({r.row->id, measured, "–", "–", "–", r.row->unit, "–", "", r.refused});
      continue;
    }
    const Estimate& e = *r.predicted;
    const char* inside = !r.compared() ? "" : r.within80() ? "80 %" : r.within95() ? "95 %" : "neither";
    table.rows.push_back({r.row->id, measured, number_text(e.value), interval_text(e, 1), interval95_text(e, 1),
                          r.row->unit,
                          r.compared() ? fmt::format("{:+.1f} %", 100 * r.error()) : "–", inside, r.group});
  }
  return table;
}

// Where the intervals of the rows are from.
std::string widths_text(const std::vector<ScoredRow>& rows) {
  std::map<std::string, std::size_t> widths;
  for (const ScoredRow& r : rows) widths[r.width_from] += r.predicted ? 1 : 0;
  std::string text;
  for (const auto& [from, count] : widths) {
    if (count == 0) continue;
    text += format_paragraph(fmt::format("interval{} of {} from {}", count == 1 ? "" : "s",
                                         count == 1 ? "one row" : fmt::format("{} rows", count), from), 0);
  }
  return text;
}

std::string rows_json(const std::vector<ScoredRow>& rows) {
  nlohmann::ordered_json json;
  json["rows"] = nlohmann::ordered_json::array();
  for (const ScoredRow& r : rows) {
    nlohmann::ordered_json row = {{"row_id", r.row->id}, {"measured", nullptr}};
    if (r.row->value) row["measured"] = *r.row->value;
    for (const auto& [key, field] :
         {std::pair{"predicted", &Estimate::value}, {"low80", &Estimate::low80}, {"high80", &Estimate::high80},
          {"low95", &Estimate::low95}, {"high95", &Estimate::high95}}) {
      row[key] = r.predicted ? nlohmann::ordered_json(*r.predicted.*field) : nlohmann::ordered_json();
    }
    row["unit"] = r.row->unit;
    row["error"] = r.compared() ? nlohmann::ordered_json(r.error()) : nlohmann::ordered_json();
    row["group"] = r.group;
    row["dominated_by"] = r.predicted ? nlohmann::ordered_json(widest_part(r)) : nlohmann::ordered_json();
    row["interval_from"] = r.width_from;
    row["unsupported"] = r.predicted ? nlohmann::ordered_json() : nlohmann::ordered_json(r.refused);
    json["rows"].push_back(std::move(row));
  }
  return json.dump(1) + "\n";
}

std::string summary_text(const std::vector<ScoredRow>& rows) {
  std::size_t predicted = 0;
  std::map<std::string, std::size_t> reasons, doubts;
  for (const ScoredRow& r : rows) {
    predicted += r.predicted ? 1 : 0;
    if (!r.predicted) reasons[r.refused] += 1;
    if (!r.doubt.empty()) doubts[r.doubt] += 1;
  }
  std::string text = fmt::format("{} of {} rows are predicted\n", predicted, rows.size());
  for (const auto& [reason, count] : reasons) text += fmt::format("not predicted: {:>4}  {}\n", count, reason);
  for (const auto& [doubt, count] : doubts) text += fmt::format("not counted:   {:>4}  {}\n", count, doubt);
  return text;
}

std::string gates_text(const std::vector<Gate>& gates) {
  std::string text;
  for (const Gate& gate : gates) {
    text += fmt::format("{}  {:6.3f}  expected {:g} to {:g}  {}\n", gate.met() ? "met   " : "MISSED", gate.value,
                        gate.lowest, gate.highest, gate.what);
  }
  return text;
}

std::string configuration(const PaperTable& table, const PaperRow& row) {
  std::string text = fmt::format("{} {}", row.model, row.policy);
  if (row.kept > 0) text += fmt::format(" {:g} %", 100 * row.kept);
  text += fmt::format(", {}", row.prompt);
  if (row.output > 0) text += fmt::format(" + {}", row.output);
  if (row.batch > 1) text += fmt::format(", batch {}", row.batch);
  return table.beams > 1 ? text + fmt::format(", {} beams", table.beams) : text;
}

// Each experiment of a paper: without anything fitted, with what full attention says, and with a policy's own constant.
Table papers_table(const std::vector<TableScore>& tables) {
  Table table;
  table.columns = {{"paper", "paper", false},       {"figure", "figure", false},
                   {"run", "run", false},           {"unit", "metric", false},
                   {"published", "published"},      {"unfitted", "unfitted"},
                   {"predicted", "predicted"},      {"error", "error"},
                   {"with policy constant", "after"}, {"allowed", "band"},
                   {"within", "within", false}};
  const auto band = [](const PaperRow& r) { return r.band ? fmt::format("{:g}", *r.band) : std::string(); };
  for (const TableScore& t : tables) {
    for (const PaperScore& s : t.rows) {
      const auto number = [](double x) { return fmt::format("{:.4g}", x); };
      const bool banded = s.row->band.has_value();
      const std::string within = !banded ? "reported" : s.met() ? "yes" : "NO";
      table.rows.push_back({t.paper->name, t.table->figure, configuration(*t.table, *s.row), t.table->metric,
                            number(s.row->value), number(s.unfitted), number(s.predicted), percent_text(s.error(), 1),
                            s.after ? number(*s.after) : "", band(*s.row), within});
      table.raw_rows.push_back({t.paper->name, t.table->figure, configuration(*t.table, *s.row), t.table->metric,
                                raw(s.row->value), raw(s.unfitted), raw(s.predicted), raw(s.error()),
                                s.after ? raw(*s.after) : "", band(*s.row), within});
    }
  }
  return table;
}

std::string fit_text(const TableScore& t) {
  std::string text = fmt::format(
      "fitted on full attention alone: {:+.2f} ms a step and {:+.1f} passes over the cache beside those of the profile "
      "{}; mean error of these rows {}, of the policies' {}",
      t.step_seconds * 1e3, t.cache_passes, t.table->engine, percent_text(t.mean_error(true).value_or(0), 1),
      percent_text(t.mean_error(false).value_or(0), 1));
  if (!t.table->policy_constant) return text;
  return text + fmt::format(", and {} with one constant of the policy, {:.2f} passes more",
                            percent_text(t.mean_error(false, true).value_or(0), 1), t.policy_passes);
}

// What was fitted, and why rows deviate.
std::string papers_notes(const std::vector<TableScore>& tables) {
  std::string text;
  for (const TableScore& t : tables) {
    const std::string name = fmt::format("{}, {}", t.paper->name, t.table->figure);
    text += format_paragraph(fmt::format("{}: {} ({})", name, t.table->about, t.paper->source), 0);
    for (const GroupScore& g : t.published) {
      text += format_paragraph(fmt::format("{}: {}, mean error {}, bias {:+.1f} %", g.group, counted(g.rows, "row"),
                                           percent_text(g.mean_error, 1), 100 * g.bias),
                               2);
    }
    if (t.table->fit) text += format_paragraph(fit_text(t), 2);
    for (const PaperScore& s : t.rows) {
      if (s.row->note.empty()) continue;
      text += format_paragraph(fmt::format("{}: {}: {}", configuration(*t.table, *s.row), percent_text(s.error(), 1),
                                           s.row->note),
                               2);
    }
  }
  return text;
}

std::vector<TableScore> score_papers(const std::vector<Paper>& papers, const std::vector<ScoredRow>& published) {
  std::vector<TableScore> tables;
  for (const Paper& paper : papers) {
    for (const PaperTable& table : paper.tables) {
      tables.push_back(score_table(paper, table, data_folder() / "catalog", published));
    }
  }
  return tables;
}

int print_papers(const Arguments& arguments, const std::vector<TableScore>& tables) {
  const std::vector<Gate> gates = gates_of(tables);
  if (format_of(arguments) == Format::kTable) {
    write_result(arguments, format_table(papers_table(tables)) + "\n" + papers_notes(tables) + "\n" +
                                gates_text(gates));
  } else {
    write_table(arguments, papers_table(tables));
  }
  const bool met = std::all_of(gates.begin(), gates.end(), [](const Gate& g) { return g.met(); });
  return static_cast<int>(met ? ExitCode::kOk : ExitCode::kGateFailed);
}

// The groups of the shipped rows, and the gates.
int print_scoreboard(const Arguments& arguments, const std::vector<ScoredRow>& rows,
                     const std::vector<Gate>& coverage, const std::vector<TableScore>& papers) {
  const Table table = groups_table(group_scores(rows));
  std::vector<Gate> gates = gates_of(rows);
  gates.insert(gates.end(), coverage.begin(), coverage.end());
  const std::vector<Gate> of_papers = gates_of(papers);
  gates.insert(gates.end(), of_papers.begin(), of_papers.end());
  const std::string below = summary_text(rows) + gates_text(gates);
  if (format_of(arguments) == Format::kTable) {
    write_result(arguments, format_table(table) + "\n" + below);
  } else {
    write_table(arguments, table);
    if (!arguments.quiet) say("{}", below);
  }
  const bool met = std::all_of(gates.begin(), gates.end(), [](const Gate& g) { return g.met(); });
  return static_cast<int>(met ? ExitCode::kOk : ExitCode::kGateFailed);
}

// The document with the shipped rows' scoreboard between its marks, to --out or in its place.
int write_readme(const Arguments& arguments, const std::vector<ScoredRow>& rows) {
  const auto& path = arguments.get<std::string>("readme");
  constexpr std::uint64_t kMostBytes = 16U << 20;
  const std::string document = read_input(path, kMostBytes).or_throw("--readme " + path, ExitCode::kUsage);
  const std::string text = with_scoreboard(document, rows).or_throw(path);
  if (arguments.has("out")) {
    write_result(arguments, text);
  } else {
    write_file(path, text);
  }
  return 0;
}

LeftOut left_out_of(const Arguments& arguments) {
  if (!arguments.has("leave-out")) return LeftOut::kTable;
  const auto& name = arguments.get<std::string>("leave-out");
  const auto found = std::find(kLeftOutNames.begin(), kLeftOutNames.end(), name);
  if (found == kLeftOutNames.end()) {
    throw usage_error(fmt::format("--leave-out {}: expected {}", name, fmt::join(kLeftOutNames, ", ")));
  }
  return static_cast<LeftOut>(found - kLeftOutNames.begin());
}

int run_validate(const Arguments& arguments) {
  const bool of_trace = !arguments.positional.empty();
  const bool own = arguments.has("rows");
  if (of_trace + own + arguments.has("papers") + arguments.has("readme") + arguments.has("leave-out") > 1) {
    throw usage_error("a trace, --rows, --papers, --readme and --leave-out contradict each other: one at a time");
  }
  if (of_trace) return validate_trace(arguments);
  if (arguments.has("device")) throw usage_error("--device is of a recorded run: kvroof validate run.kvt --device D");
  const std::vector<PublishedRow> published =
      read_published_rows(own ? std::filesystem::path(arguments.get<std::string>("rows")) : shipped_rows());
  std::vector<ScoredRow> rows = score_rows(published);
  if (!own) {
    const std::vector<Gate> coverage = coverage_gates(rows);
    set_intervals(rows, interval_table(rows), left_out_of(arguments));
    if (arguments.has("readme")) return write_readme(arguments, rows);
    const std::vector<Paper> papers = read_papers(data_folder() / "validation" / "papers");
    const std::vector<TableScore> tables = score_papers(papers, rows);
    if (arguments.has("papers")) return print_papers(arguments, tables);
    return print_scoreboard(arguments, rows, coverage, tables);
  }
  set_intervals(rows, shipped_intervals());
  if (format_of(arguments) == Format::kJson) {
    write_result(arguments, rows_json(rows));
    return 0;
  }
  if (format_of(arguments) == Format::kCsv) {
    write_table(arguments, rows_csv(rows));
  } else {
    write_result(arguments, format_table(rows_table(rows)) + "\n" + widths_text(rows) + summary_text(rows));
  }
  return 0;
}

void describe_validate(po::options_description_easy_init add) {
  add("rows", po::value<std::string>(),
      "a CSV file of rows to predict, each with its interval; values may be empty; validation/ROWS.md has an example "
      "and explains its columns (row_id, level, model_or_op, weight_precision, kv_precision, gpu, n_gpus, engine, "
      "batch_mode, batch, input_len, output_len, metric, value, unit, source)");
  add("device", po::value<std::string>(), "what ran the recorded run: a name or a file of `kvroof calibrate`");
  add("leave-out", po::value<std::string>(),
      "what of the shipped rows is as if not measured when one of them gets its interval: nothing, table (as without "
      "it), device, engine or device-engine");
  add("readme", po::value<std::string>(), "write the scoreboard between the marks of this Markdown file");
  add("papers", po::bool_switch(), "experiments of papers instead: each run, what was fitted, why it deviates");
}

constexpr std::string_view kValidateExamples =
    "  kvroof validate\n"
    "  kvroof validate --leave-out device-engine\n"
    "  kvroof validate --papers\n"
    "  kvroof validate --readme README.md\n"
    "  kvroof validate run.kvt --device cpu.yaml\n"
    "  kvroof validate --rows my-measurements.csv\n"
    "  kvroof validate --rows my-measurements.csv --format json";

}  // namespace

Command validate_command() {
  return {"validate", "the cost model against published measurements: errors and coverage of the intervals",
          "[run.kvt --device D | --rows FILE.csv | --papers | --readme FILE.md] [options]", kValidateExamples,
          &describe_validate, &run_validate, 0, 1};
}

}  // namespace kvroof
