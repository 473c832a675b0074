#include "apps/traces/kernel_report_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace kvroof {
namespace {

// A quantity for people (with few digits) and for programs (in full).
struct Cell {
  std::string shown, raw;
};
Cell nothing() { return {"", ""}; }
Cell text(const std::string& value) { return {value, value}; }
Cell count(std::uint64_t value) { return text(std::to_string(value)); }
Cell scaled(double value, double unit, int digits) {
  return {fmt::format("{:.{}f}", value / unit, digits), fmt::format("{}", value)};
}
Cell ms(double ns) { return {fmt::format("{:.3f}", ns / 1e6), fmt::format("{:.0f}", ns)}; }
Cell us(double ns) { return {fmt::format("{:.2f}", ns / 1e3), fmt::format("{:.0f}", ns)}; }
Cell megabytes(double bytes) { return {fmt::format("{:.3f}", bytes / 1e6), fmt::format("{:.0f}", bytes)}; }

void add_row(Table& table, const std::vector<Cell>& cells) {
  table.rows.emplace_back();
  table.raw_rows.emplace_back();
  for (const Cell& cell : cells) {
    table.rows.back().push_back(cell.shown);
    table.raw_rows.back().push_back(cell.raw);
  }
}

void drop_column(Table& table, std::size_t c) {
  const auto at = static_cast<std::ptrdiff_t>(c);
  table.columns.erase(table.columns.begin() + at);
  for (auto* rows : {&table.rows, &table.raw_rows}) {
    for (std::vector<std::string>& row : *rows) row.erase(row.begin() + at);
  }
}

// Takes out columns in which no row has anything to say.
void drop_empty_columns(Table& table) {
  for (std::size_t c = table.columns.size(); c-- > 0;) {
    const auto empty = [&](const std::vector<std::string>& row) { return row[c].empty(); };
    if (std::all_of(table.rows.begin(), table.rows.end(), empty)) drop_column(table, c);
  }
}

double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

// Counted bytes, and, where both directions are in them, how many they are to the declared ones; null: nothing was
// counted.
std::pair<Cell, Cell> counted_cells(const CountedBytes* c) {
  if (c == nullptr || !c->any()) return {nothing(), nothing()};
  return {megabytes(c->bytes), c->comparable() ? scaled(c->ratio(), 1, 3) : nothing()};
}

class OperatorTable {
 public:
  // `kernels`: of the report, what has a row each.
  OperatorTable(const KernelAnswer& answer, const std::vector<WorkTotals>& kernels)
      : answer_(answer), report_(answer.report), kernels_(kernels) {
    table_.columns = {{"what", "name", false},
                      {"kind", "kind", false},
                      {"calls", "calls"},
                      {"time (ms)", "total_ns"},
                      {"of elapsed (%)", "share_percent"},
                      {"mean (us)", "mean_ns"},
                      {"median (us)", "median_ns"},
                      {"deviation (us)", "deviation_ns"},
                      {"min (us)", "min_ns"},
                      {"max (us)", "max_ns"},
                      {"bytes (MB)", "bytes"},
                      {"counted (MB)", "counted_bytes"},
                      {"counted / declared", "counted_ratio"},
                      {"rate (GB/s)", "bytes_per_second"},
                      {"of limit (%)", "limit_percent"},
                      {"flop/byte", "flops_per_byte"},
                      {"of roof (%)", "roof_percent"}};
  }

  Table make() {
    const std::size_t shown = answer_.top == 0 ? kernels_.size() : answer_.top;
    WorkTotals others;
    std::string kind_of_others;  // empty: they are of several
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
      const std::string kind = kernels_[i].purpose.empty() ? "operator" : kernels_[i].purpose;
      if (i < shown) {
        add(kernels_[i], kind);
      } else {
        kind_of_others = i == shown || kind == kind_of_others ? kind : "";
        others += kernels_[i];
      }
    }
    if (kernels_.size() > shown) {
      others.name = fmt::format("{} more", kernels_.size() - shown);
      add(others, kind_of_others);
    }
    if (!kernels_.empty()) add(report_.all_kernels, "total");
    if (!report_.steps.empty()) add_policy();
    for (const WorkTotals& copy : report_.copies) add(copy, "copy");
    if (report_.elapsed_ns > 0) add_idle();
    return std::move(table_);
  }

 private:
  [[nodiscard]] Cell of_elapsed(double ns) const {
    if (report_.elapsed_ns == 0) return nothing();
    return scaled(share(ns, static_cast<double>(report_.elapsed_ns)), 1, 1);
  }
  // Bytes of some of the kernels beside the time of all would be no rate, unless the engine said what all its steps do.
  void add(WorkTotals t, const std::string& kind) {
    if (report_.steps.empty() && t.known < t.calls) t.bytes = t.flops = 0;
    const bool timed = t.timed > 0;
    const double rate = t.bytes_per_second();
    const bool kernels = kind != "copy";  // copies to the host go over another link
    const bool rated = rate > 0, limited = rated && kernels && answer_.device;
    const double limit = answer_.device ? answer_.device->bandwidth().value : 0;
    const double intensity = t.flops_per_byte();
    const bool roofed = limited && t.flops > 0;
    const double roof = roofed ? std::min(answer_.device->peak(DType::kBF16).value, intensity * limit) : 0;
    const auto [counted, ratio] = counted_cells(&t.counted);
    add_row(table_, {text(t.name), text(kind), t.calls > 0 ? count(t.calls) : nothing(),
                     timed ? ms(static_cast<double>(t.total_ns)) : nothing(),
                     timed ? of_elapsed(static_cast<double>(t.total_ns)) : nothing(),
                     timed ? us(t.mean_ns()) : nothing(), timed ? us(t.median_ns()) : nothing(),
                     t.timed > 1 ? us(t.spread.deviation_ns()) : nothing(),
                     timed ? us(static_cast<double>(t.min_ns)) : nothing(),
                     timed ? us(static_cast<double>(t.max_ns)) : nothing(),
                     t.bytes > 0 ? megabytes(static_cast<double>(t.bytes)) : nothing(), counted, ratio,
                     rated ? scaled(rate, 1e9, 1) : nothing(),
                     limited ? scaled(share(rate, limit), 1, 1) : nothing(),
                     t.flops > 0 && t.bytes > 0 ? scaled(intensity, 1, 2) : nothing(),
                     roofed ? scaled(share(intensity * rate, roof), 1, 1) : nothing()});
  }
  void add_policy() {
    add_row(table_, {text("policy: scores and compaction"), text("policy"), nothing(), ms(report_.policy_ns),
                     of_elapsed(report_.policy_ns), nothing(), nothing(), nothing(), nothing(), nothing(),
                     megabytes(static_cast<double>(report_.policy_bytes)), nothing(), nothing(), nothing(), nothing(),
                     nothing(), nothing()});
  }
  void add_idle() {
    const auto idle = static_cast<double>(report_.idle_ns);
    const double mean = report_.gaps > 0 ? idle / static_cast<double>(report_.gaps) : 0;
    add_row(table_, {text("idle between work"), text("idle"), count(report_.gaps), ms(idle), of_elapsed(idle),
                     us(mean), nothing(), nothing(), nothing(), us(static_cast<double>(report_.longest_gap_ns)),
                     nothing(), nothing(), nothing(), nothing(), nothing(), nothing(), nothing()});
  }

  const KernelAnswer& answer_;
  const KernelReport& report_;
  const std::vector<WorkTotals>& kernels_;
  Table table_;
};

// A step, or a window of steps whose bytes were counted together, of which no kernel is known.
struct StepRow {
  std::string steps;
  StepTotals totals;
  CountedBytes counted;
  StepRow& operator+=(const StepRow& other) {
    totals += other.totals;
    counted += other.counted;
    return *this;
  }
};

// Steps, each with its own counters, then the windows of several.
std::vector<StepRow> step_rows(const KernelReport& report) {
  std::map<std::uint32_t, const CountedSteps*> of_one;
  for (const CountedSteps& c : report.counted) {
    if (c.steps == 1) of_one.emplace(c.first_step, &c);
  }
  std::vector<StepRow> rows;
  for (const StepTotals& s : report.steps) {
    rows.push_back({std::to_string(s.step), s, {}});
    const auto found = of_one.find(s.step);
    if (found != of_one.end()) rows.back().counted = std::exchange(found->second, nullptr)->counted;
  }
  for (const CountedSteps& c : report.counted) {
    const auto found = of_one.find(c.first_step);
    if (c.steps == 1 && found != of_one.end() && found->second == nullptr) continue;
    const std::uint32_t last = c.first_step + c.steps - 1;
    rows.push_back({c.steps == 1 ? std::to_string(last) : fmt::format("{}..{}", c.first_step, last), {}, c.counted});
  }
  return rows;
}

void add_step_row(Table& table, const StepRow& row) {
  const StepTotals& s = row.totals;
  const auto [counted, ratio] = counted_cells(&row.counted);
  if (s.kernels == 0) {
    return add_row(table, {text(row.steps), nothing(), nothing(), nothing(), nothing(), nothing(), nothing(),
                           megabytes(static_cast<double>(row.counted.declared)), counted, ratio});
  }
  add_row(table, {text(row.steps), count(s.kernels), us(s.total_ns()), us(s.of(Cause::kWeights)), us(s.kv_ns()),
                  us(s.policy_ns()), us(s.of(Cause::kActivations)), megabytes(static_cast<double>(s.declared.total())),
                  counted, ratio});
}

}  // namespace

Table for_people(Table table) {
  drop_empty_columns(table);
  const auto key = [](std::string_view name) { return [name](const Table::Column& c) { return c.key == name; }; };
  if (std::ranges::none_of(table.columns, key("bytes"))) return table;
  for (const std::string_view name : {"median_ns", "deviation_ns"}) {
    const auto column = std::ranges::find_if(table.columns, key(name));
    if (column != table.columns.end()) drop_column(table, static_cast<std::size_t>(column - table.columns.begin()));
  }
  return table;
}

Table operator_table(const KernelAnswer& answer) { return OperatorTable(answer, answer.report.operators).make(); }
Table purpose_table(const KernelAnswer& answer) { return OperatorTable(answer, answer.report.purposes).make(); }

Table step_table(const KernelAnswer& answer) {
  Table table;
  table.columns = {{"steps", "steps", false},
                   {"kernels", "kernels"},
                   {"time (us)", "total_ns"},
                   {"weights (us)", "weights_ns"},
                   {"KV (us)", "kv_ns"},
                   {"policy (us)", "policy_ns"},
                   {"activations (us)", "activations_ns"},
                   {"declared (MB)", "declared_bytes"},
                   {"counted (MB)", "counted_bytes"},
                   {"counted / declared", "counted_ratio"}};
  const std::vector<StepRow> rows = step_rows(answer.report);
  const std::size_t shown = answer.top_steps == 0 ? rows.size() : std::min(answer.top_steps, rows.size());
  for (std::size_t i = 0; i < shown; ++i) add_step_row(table, rows[i]);
  if (shown < rows.size()) {
    StepRow others{fmt::format("{} more", rows.size() - shown), {}, {}};
    for (std::size_t i = shown; i < rows.size(); ++i) others += rows[i];
    add_step_row(table, others);
  }
  return table;
}

Table range_table(const KernelAnswer& answer) {
  const RangeReport& report = *answer.ranges;
  Table table;
  table.columns = {{"range", "name", false},
                   {"times", "ranges"},
                   {"kernels", "kernels"},
                   {"copies", "copies"},
                   {"GPU time (ms)", "total_ns"},
                   {"of elapsed (%)", "share_percent"},
                   {"of its own (ms)", "own_ns"},
                   {"a range (us)", "mean_ns"},
                   {"first to last (us)", "mean_span_ns"}};
  const auto elapsed = static_cast<double>(answer.report.elapsed_ns);
  const auto add = [&](const RangeTotals& t, bool is_range) {
    const auto ns = static_cast<double>(t.total_ns), ranges = static_cast<double>(t.ranges);
    add_row(table, {text(t.text), is_range ? count(t.ranges) : nothing(), count(t.kernels), count(t.copies), ms(ns),
                    elapsed > 0 ? scaled(share(ns, elapsed), 1, 1) : nothing(),
                    is_range ? ms(static_cast<double>(t.own_ns)) : nothing(), is_range ? us(ns / ranges) : nothing(),
                    is_range ? us(static_cast<double>(t.span_ns) / ranges) : nothing()});
  };
  const std::size_t all = report.ranges.size(), shown = answer.top == 0 ? all : std::min(answer.top, all);
  for (std::size_t i = 0; i < shown; ++i) add(report.ranges[i], true);
  if (shown < all) {
    std::uint64_t ranges = 0, own_ns = 0;
    for (std::size_t i = shown; i < all; ++i) {
      ranges += report.ranges[i].ranges;
      own_ns += report.ranges[i].own_ns;
    }
    // What they hold of one another would count twice.
    add_row(table, {text(fmt::format("{} more", all - shown)), count(ranges), nothing(), nothing(), nothing(),
                    nothing(), ms(static_cast<double>(own_ns)), nothing(), nothing()});
  }
  RangeTotals outside = report.outside, whole = report.all;
  outside.text = "outside of ranges";
  whole.text = "all work";
  add(outside, false);
  add(whole, false);
  return table;
}

Table nothing_table(const RecordedLevel& recorded) {
  Table table;
  table.columns = {{"kernels", "kernels"}, {"level", "level", false}, {"why", "why", false}};
  table.rows = {{"0", recorded.level, recorded.why}};
  return table;
}

std::string kernel_report_json(const KernelAnswer& answer) {
  const auto rows = [](const Table& table) { return nlohmann::ordered_json::parse(format_json_rows(table)); };
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json json = {{"level", text_or_null(answer.recorded.level)},
                                 {"why", text_or_null(answer.recorded.why)},
                                 {"device", nullptr},
                                 {"limit_bytes_per_second", nullptr},
                                 {"elapsed_ns", answer.report.elapsed_ns},
                                 {"operators", rows(operator_table(answer))},
                                 {"purposes", rows(purpose_table(answer))},
                                 {"steps", rows(step_table(answer))}};
  if (answer.ranges) json["ranges"] = rows(range_table(answer));
  if (answer.device) {
    json["device"] = answer.device->name;
    json["limit_bytes_per_second"] = answer.device->bandwidth().value;
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace kvroof
