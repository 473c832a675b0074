#include "apps/eval/eval_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/cli/output.hpp"
#include "apps/eval/eval_summary.hpp"
#include "apps/prediction/policy_labels.hpp"

namespace kvroof {
namespace {

// One cell of a row with its column: rows are made cell by cell, and the first row gives the columns.
struct Cell {
  Table::Column column;
  std::string text;  // for people; empty: not in their table
  std::string raw;
  std::optional<Format> only = std::nullopt;  // none: in all formats
};
using Cells = std::vector<Cell>;

std::string exact(double value) { return fmt::format("{}", value); }
std::string exact(const std::optional<double>& value) { return value ? exact(*value) : std::string(); }
Cell count(const char* title, const char* key, std::uint64_t value) {
  return {{title, key}, std::to_string(value), std::to_string(value)};
}
Cell number(const char* title, const char* key, double value, int digits) {
  return {{title, key}, fmt::format("{:.{}f}", value, digits), exact(value)};
}
// "0.533 ±0.126", the latter 1.96 standard errors. Full attention is no change from itself.
std::string with_spread(const std::string& value, const std::optional<double>& standard_error, int digits) {
  return value + " ±" + (standard_error ? fmt::format("{:.{}f}", 1.96 * *standard_error, digits) : "–");
}
std::string change_text(const PairedDifference& d, bool is_full, int digits) {
  return is_full ? "–" : with_spread(fmt::format("{:+.{}f}", d.mean, digits), d.standard_error, digits);
}
// Only in JSON and CSV.
Cell machine(const char* key, std::string raw, bool is_number = true) {
  return {{key, key, is_number}, "", std::move(raw)};
}

void add_point(const EvalPoint& point, PolicyLabels& labels, Cells& cells) {
  const Budget& budget = point.spec.budget;
  cells.push_back({{"policy", "policy", false}, labels.of(point.spec), short_name(point.spec)});
  cells.push_back({{"budget", "budget", false},
                   budget_text(point.spec),
                   budget.kind == Budget::Kind::kUnlimited ? "" : budget.text});
  cells.push_back(machine("spec", point.spec.text(), false));
}

void add_kv(const EvalPoint& point, const EvalPoint& full, Cells& cells) {
  const auto& held = point.kv_resident_bytes;
  const std::string mib = held ? fmt::format("{:.3g}", *held / (1 << 20)) : "–";
  cells.push_back({{"KV held (MiB)", "kv_resident_bytes"}, mib, exact(held)});
  const auto share = held ? std::optional(*held / *full.kv_resident_bytes) : std::nullopt;
  cells.push_back(
      {{"KV of full", "kv_share_of_full"}, share ? fmt::format("{:.1f} %", *share * 100) : "–", exact(share)});
}

struct RowMaker {
  const EvalPoint& point;
  const EvalPoint& full;
  PolicyLabels& labels;

  Cells operator()(const TextExamples& text) const {
    const TextScore score = text_score(text, point), base = text_score(text, full);
    const PairedDifference d = difference(point, full);
    Cells cells;
    add_point(point, labels, cells);
    cells.push_back(count("tokens counted", "tokens", score.tokens));
    cells.push_back(machine("bytes", std::to_string(score.bytes)));
    cells.push_back(number("perplexity", "perplexity", score.perplexity(), 4));
    const double ratio = score.perplexity() / base.perplexity() - 1;
    cells.push_back({{"change", "perplexity_change"}, fmt::format("{:+.2f} %", ratio * 100), exact(ratio)});
    cells.push_back(number("nats a token", "nats_per_token", score.nats_per_token(), 4));
    cells.push_back({{"difference ±95%", "nats_difference"}, change_text(d, is_full(), 4), exact(d.mean)});
    cells.push_back(machine("nats_difference_standard_error", exact(d.standard_error)));
    cells.push_back(number("bits a byte", "bits_per_byte", score.bits_per_byte(), 4));
    add_kv(point, full, cells);
    return cells;
  }

  Cells operator()(const AnswerExamples& examples) const {
    Cells cells;
    add_point(point, labels, cells);
    const std::size_t turns = examples.turns();
    cells.push_back(count(turns > 1 ? "questions" : "prompts", "examples", examples.questions().size()));
    for (const AnswerMetric* metric : examples.metrics) {
      for (const AnswerColumn& column : metric->columns) {
        add_score(examples, column, cells);
        if (turns > 1) add_turns(means_by_turn(examples, point, column), column, cells);
      }
    }
    cells.push_back(machine("decoding", "greedy; beams are simulated as batch", false));
    add_kv(point, full, cells);
    return cells;
  }

  Cells operator()(const std::vector<ChoiceExample>& examples) const {
    const ChoiceSummary summary = choice_summary(examples, point, full);
    Cells cells;
    add_point(point, labels, cells);
    cells.push_back(count("questions", "examples", examples.size()));
    add_share("accuracy", "accuracy", summary.accuracy, 4, cells);
    add_share("accuracy per byte", "accuracy_per_byte", summary.accuracy_per_byte, 4, cells);
    cells.push_back(number("same choice as full", "agreement_with_full", summary.agreement, 4));
    add_kv(point, full, cells);
    return cells;
  }

  Cells operator()(const NeedleExamples& examples) const {
    Cells cells;
    add_point(point, labels, cells);
    cells.push_back(count("keys", "examples", examples.cases.size()));
    add_share("found", "found", share_summary(found_keys(point), found_keys(full)), 3, cells);
    const std::vector<double> found = found_by_depth(examples, point);
    for (std::size_t d = 0; d < found.size(); ++d) {
      const std::string depth = exact(examples.depths[d]);
      cells.push_back(number(("at " + depth).c_str(), ("found_at_" + depth).c_str(), found[d], 2));
    }
    cells.push_back(number("nats a token", "nats_per_token", nats_per_key_token(point), 3));
    add_kv(point, full, cells);
    add_cells(examples, cells);
    return cells;
  }

 private:
  void add_score(const AnswerExamples& examples, const AnswerColumn& column, Cells& cells) const {
    const double mean = mean_of(point, column);
    if (column.title.empty()) return cells.push_back(machine(column.key.c_str(), exact(mean)));
    const PairedDifference d = difference(examples, point, full, column);
    cells.push_back(number(column.title.c_str(), column.key.c_str(), mean, 4));
    add_change(column.key, mean - mean_of(full, column), d, 4, cells);
  }

  // A column each; people see the first and the last.
  static void add_turns(const std::vector<double>& means, const AnswerColumn& column, Cells& cells) {
    for (std::size_t turn = 0; turn < means.size(); ++turn) {
      const std::string key = fmt::format("{}_at_turn_{}", column.key, turn + 1);
      const bool shown = !column.title.empty() && (turn == 0 || turn + 1 == means.size());
      cells.push_back(shown ? number(fmt::format("turn {}", turn + 1).c_str(), key.c_str(), means[turn], 4)
                            : machine(key.c_str(), exact(means[turn])));
    }
  }

  [[nodiscard]] bool is_full() const { return &point == &full; }

  void add_share(const std::string& title, const std::string& key, const ShareSummary& summary, int digits,
                 Cells& cells) const {
    const std::string text = fmt::format("{:.{}f}", summary.share, digits);
    cells.push_back(
        {{title + " ±95%", key}, with_spread(text, summary.standard_error, digits), exact(summary.share)});
    add_change(key, summary.change.mean, summary.change, digits, cells);
    cells.push_back(machine((key + "_standard_error").c_str(), exact(summary.standard_error)));
  }

  // `exactly`: the same mean, as the difference of two means, whose last digits may be others.
  void add_change(const std::string& key, double exactly, const PairedDifference& d, int digits, Cells& cells) const {
    cells.push_back({{"change ±95%", key + "_change"}, change_text(d, is_full(), digits), exact(exactly)});
    cells.push_back(machine((key + "_change_standard_error").c_str(), exact(d.standard_error)));
  }

  // A list in JSON, a column each in CSV; people have the picture.
  void add_cells(const NeedleExamples& examples, Cells& cells) const {
    const std::vector<double> found = found_by_context_and_depth(examples, point);
    auto list = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::uint32_t context = examples.contexts[i / examples.depths.size()];
      const double depth = examples.depths[i % examples.depths.size()];
      list.push_back({{"context", context}, {"depth", depth}, {"examples", examples.keys}, {"found", found[i]}});
      Cell cell = machine(fmt::format("found_at_{}_of_{}", depth, context).c_str(), exact(found[i]));
      cell.only = Format::kCsv;
      cells.push_back(std::move(cell));
    }
    Cell all = machine("found_by_context_and_depth", list.dump());
    all.only = Format::kJson;
    cells.push_back(std::move(all));
  }
};

}  // namespace

EvalTable eval_table(const Examples& examples, std::span<const EvalPoint> points, Format format) {
  Table table;
  PolicyLabels labels;
  for (const EvalPoint& point : points) {
    std::vector<std::string> row;
    const bool first = table.rows.empty();
    for (Cell& cell : std::visit(RowMaker{point, points.front(), labels}, examples)) {
      if (cell.only.value_or(format) != format || (format == Format::kTable && cell.text.empty())) continue;
      if (first) table.columns.push_back(std::move(cell.column));
      row.push_back(format == Format::kTable ? std::move(cell.text) : std::move(cell.raw));
    }
    table.rows.push_back(std::move(row));
  }
  return {std::move(table), format == Format::kTable ? labels.footnotes() : std::vector<std::string>()};
}

}  // namespace kvroof
