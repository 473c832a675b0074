#include "apps/replay/replay_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/cli/table.hpp"
#include "apps/cli/wide_rows.hpp"
#include "apps/prediction/accounting_output.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/policy_labels.hpp"
#include "kvroof_version.hpp"
#include "sim/core/number_text.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

bool limited(const PolicySpec& spec) { return spec.budget.kind != Budget::Kind::kUnlimited; }

std::string share(std::optional<double> x) { return x ? fmt::format("{:.3f}", *x) : "–"; }

std::string kept_text(double tokens) {
  const bool whole = tokens == std::floor(tokens) || tokens >= 1000;
  return whole ? fmt::format("{:.0f}", tokens) : fmt::format("{:.1f}", tokens);
}

struct Unit {
  const char* name;
  double bytes;
};

Unit unit_for(double bytes) {
  if (bytes >= kGiB) return {"GiB", kGiB};
  if (bytes >= 1024.0 * 1024.0) return {"MiB", 1024.0 * 1024.0};
  return {"KiB", 1024.0};
}

// A column of bytes: in the unit of its largest value, or, where they lie too far apart, each cell in its own.
class BytesColumn {
 public:
  explicit BytesColumn(const char* title) : title_(title) {}
  void see(std::uint64_t bytes) {
    const auto value = static_cast<double>(bytes);
    largest_ = std::max(largest_, value);
    if (value > 0) smallest_ = std::min(smallest_, value);
  }
  [[nodiscard]] std::string title() const { return shared() ? fmt::format("{} {}", title_, unit().name) : title_; }
  [[nodiscard]] std::string cell(std::uint64_t bytes) const {
    const auto value = static_cast<double>(bytes);
    if (shared()) return number_text(value / unit().bytes);
    const Unit own = unit_for(value);
    return fmt::format("{} {}", number_text(value / own.bytes), own.name);
  }

 private:
  [[nodiscard]] Unit unit() const { return unit_for(largest_); }
  [[nodiscard]] bool shared() const { return largest_ < 1e4 * smallest_; }

  std::string title_;
  double largest_ = 0;
  double smallest_ = INFINITY;
};

// Lines of at most 110 bytes, broken at blanks; a line that goes on is indented.
std::string wrapped(std::string text) {
  constexpr std::size_t kWidth = 110;
  for (std::size_t begin = 0; text.size() - begin > kWidth;) {
    const std::size_t blank = text.rfind(' ', begin + kWidth);
    if (blank == std::string::npos || blank <= begin + 2) break;
    text.replace(blank, 1, "\n  ");
    begin = blank + 1;
  }
  return text + "\n";
}

std::string title_of_model(const ReplayAnswer& answer, const std::string& model) {
  const ReplayRequest& r = answer.request;
  std::string text = fmt::format("As {}", model);
  if (r.prompt) text += fmt::format(", prompt {}", *r.prompt);
  if (r.output) text += fmt::format(", output {}", *r.output);
  return text + "\n";
}

struct Cells {
  std::vector<Table::Column> columns;
  std::vector<std::string> row;
  bool first = true;

  void add(std::string title, std::string text, bool number = true) {
    if (first) columns.push_back({std::move(title), "", number});
    row.push_back(std::move(text));
  }
};

bool has_position(const ReplayPoint& p) { return p.bounds.has_value(); }

void add_cells(Cells& cells, const ReplayPoint& p, PolicyLabels& labels, bool devices, bool bounds,
               const BytesColumn& resident, const BytesColumn& read) {
  const PolicySpec& spec = p.result->spec;
  const Quality* quality = p.quality();
  cells.add("policy", labels.of(spec), false);
  cells.add("budget", budget_text(spec));
  if (devices) cells.add("device", p.device, false);
  cells.add("batch", std::to_string(p.batch));
  cells.add("kept", kept_text(p.accounting.kept_tokens));
  cells.add(resident.title(), resident.cell(p.accounting.kv_resident));
  if (!devices) cells.add(read.title(), read.cell(p.accounting.kv_read));
  cells.add("recall mean", share(quality ? std::optional(quality->recall_mean) : std::nullopt));
  if (const auto error = quality ? quality->recall_standard_error() : std::nullopt; error && !devices) {
    cells.add("±95%", share(1.96 * *error));
  }
  // Beside devices there is room for one of the two.
  if (!devices || !bounds) {
    cells.add("recall worst", share(quality ? std::optional(quality->recall_worst1) : std::nullopt));
  }
  if (bounds) cells.add("position", share(p.position()));
  cells.add("output error", share(quality ? quality->output_error : std::nullopt));
  if (!devices) return;
  cells.add("step ms", p.prediction ? with_interval(p.prediction->step, 1e3) : "–");
  cells.add("tok/s", p.prediction ? number_text(p.prediction->tokens_per_s.value) : "–");
  cells.add("largest batch", p.largest_batch ? std::to_string(*p.largest_batch) : "–");
  cells.add("limited by", p.limited_by, false);
}

std::string table_of(std::span<const ReplayPoint> points, PolicyLabels& labels, bool devices) {
  BytesColumn resident("KV held");
  BytesColumn read("KV read a step");
  for (const ReplayPoint& p : points) {
    resident.see(p.accounting.kv_resident);
    read.see(p.accounting.kv_read);
  }
  const bool bounds = std::any_of(points.begin(), points.end(), has_position);
  Table table;
  Cells cells;
  for (const ReplayPoint& p : points) {
    add_cells(cells, p, labels, devices, bounds, resident, read);
    table.rows.push_back(std::move(cells.row));
    cells.row.clear();
    cells.first = false;
  }
  table.columns = std::move(cells.columns);
  return format_table(table);
}

std::string accounting_of(std::span<const ReplayPoint> points, PolicyLabels& labels) {
  std::vector<AccountingLine> lines;
  for (const ReplayPoint& p : points) {
    lines.push_back({labels.of(p.result->spec), budget_text(p.result->spec), p.batch, p.accounting});
  }
  return accounting_table(lines);
}

std::string open_closed_table(const OpenClosedReport& report) {
  Table table;
  table.columns = {
      {"layer", "layer"}, {"overlap mean", "mean"}, {"overlap lowest step", "low"}, {"after the prompt", "p"}};
  for (std::uint32_t layer = 0; layer < report.layers; ++layer) {
    table.rows.push_back({std::to_string(layer), fmt::format("{:.4f}", report.mean_of_layer(layer)),
                          fmt::format("{:.4f}", report.lowest[layer]),
                          fmt::format("{:.4f}", report.at(0, layer))});
  }
  const std::string token = report.first_differing_token ? fmt::format("decoded token {} is the first that differs",
                                                                       *report.first_differing_token)
                                                         : std::string("all generated tokens are equal");
  return "\n" +
         wrapped(fmt::format(
             "Open against closed loop under {}: share of the kept tokens that replay and the run have in common; {}",
             report.policy, token)) +
         format_table(table);
}

Json or_null(const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); }

Json json_of(const BoundRecalls& b) {
  return {{"budget", b.budget.text}, {"random", b.random}, {"oracle", b.oracle}};
}

Json json_of(const ReplayPoint& p) {
  const PolicySpec& spec = p.result->spec;
  const Quality* q = p.quality();
  Json json = {{"point", spec.text()}, {"policy", short_name(spec)}};
  json["budget"] = limited(spec) ? Json(spec.budget.text) : Json(nullptr);
  json["budget_meaning"] = spec.budget.describe();
  if (!p.model.empty()) json["model"] = p.model;
  json["device"] = p.device.empty() ? Json(nullptr) : Json(p.device);
  json["batch"] = p.batch;
  json["batch_is_max"] = p.batch_is_max;
  json["kept_tokens"] = p.accounting.kept_tokens;
  json["kv_resident_bytes"] = p.accounting.kv_resident;
  json["kv_read_bytes"] = p.accounting.kv_read;
  json["accounting"] = accounting_json(p.accounting);
  json["kv_read_scale_bytes"] = p.accounting.kv_read_scales;
  json["kv_read_residual_bytes"] = p.accounting.kv_read_residual;
  json["kv_type"] = name_of(p.kv);
  json["recall_mean"] = q ? Json(q->recall_mean) : Json(nullptr);
  json["recall_worst1"] = q ? Json(q->recall_worst1) : Json(nullptr);
  json["position"] = or_null(p.position());
  json["position_bounds"] = p.bounds ? json_of(*p.bounds) : Json(nullptr);
  json["output_error"] = q ? or_null(q->output_error) : Json(nullptr);
  const auto& time = p.prediction;
  json["step_ms"] = time ? Json(time->step.value * 1e3) : Json(nullptr);
  json["step_ms_interval"] = time ? interval_json(time->step, 1e3) : Json(nullptr);
  json["interval_from"] = time ? Json(p.interval_from) : Json(nullptr);
  json["tokens_per_s"] = time ? Json(time->tokens_per_s.value) : Json(nullptr);
  json["tokens_per_s_interval"] = time ? interval_json(time->tokens_per_s, 1) : Json(nullptr);
  json["largest_batch"] = p.largest_batch ? Json(*p.largest_batch) : Json(nullptr);
  json["largest_batch_interval"] = p.largest_batch ? interval_json(p.largest_batch_interval, 1) : Json(nullptr);
  json["limited_by"] = p.limited_by.empty() ? Json(nullptr) : Json(p.limited_by);
  return json;
}

// How sequences differ, of which the means are.
Json json_of_sequences(const Quality& quality) {
  Json sequences = Json::array();
  for (const SequenceQuality& s : quality.sequences) {
    sequences.push_back({{"id", s.id},
                         {"recall_mean", s.recall_mean},
                         {"output_error", quality.output_error ? Json(s.output_error) : Json(nullptr)}});
  }
  const auto or_null = [](const std::optional<double>& x) { return x ? Json(*x) : Json(nullptr); };
  return {{"sequences", sequences},
          {"recall_standard_error", or_null(quality.recall_standard_error())},
          {"output_error_standard_error", or_null(quality.output_error_standard_error())}};
}

// What does not depend on device and batch: quality by layer, and how the recording was reproduced.
Json json_of(const PointResult& result) {
  Json json = {{"point", result.spec.text()}, {"bound", result.traits.bound}};
  json["kept_by_layer"] = kept_by_layer(result.residency);
  if (result.quality) {
    json["values"] = result.quality->values;
    json["layers"] = Json::array();
    for (const LayerQuality& layer : result.quality->layers) {
      json["layers"].push_back(
          {{"recall_mean", layer.recall_mean},
           {"output_error", result.quality->output_error ? Json(layer.output_error) : Json(nullptr)}});
    }
    json.update(json_of_sequences(*result.quality));
  }
  if (result.reproduction) {
    const Reproduction& r = *result.reproduction;
    json["reproduction"] = {{"decisions", r.decisions},
                            {"differences", r.differences},
                            {"beyond_rounding", r.beyond_rounding},
                            {"holds", r.problem().empty()}};
  }
  return json;
}

Json json_of(const OpenClosedReport& report) {
  Json json = {{"policy", report.policy}, {"equal_after_prompt", report.equal_after_prompt}};
  json["first_differing_token"] = report.first_differing_token ? Json(*report.first_differing_token) : Json(nullptr);
  json["equal_layer0_until_differing"] = report.equal_layer0_until_differing;
  json["lowest"] = report.lowest;   // [layer]
  json["overlap"] = Json::array();  // [step][layer]
  for (std::uint32_t step = 0; step <= report.steps; ++step) {
    const auto row = report.overlap.begin() + static_cast<std::ptrdiff_t>(std::size_t{step} * report.layers);
    json["overlap"].push_back(std::vector<double>(row, row + report.layers));
  }
  return json;
}

Json manifest_json(const ReplayAnswer& answer) {
  const TraceManifest& m = answer.manifest;
  Json json = {{"version", kVersion}, {"seed", answer.seed}};
  json["trace"] = {{"path", answer.request.trace.string()},
                   {"source", m.source},
                   {"model", m.model_name},
                   {"backend", m.backend},
                   {"policy", m.policy},
                   {"seed", m.seed},
                   {"kv_type", name_of(m.kv_type)},
                   {"layers", m.layers.size()},
                   {"sequences", Json::array()}};
  if (m.cache_type) json["trace"]["cache_type"] = name_of(*m.cache_type);
  for (const TraceSequence& s : m.sequences) {
    json["trace"]["sequences"].push_back({{"id", s.id}, {"prompt", s.prompt}, {"tokens", s.tokens}});
  }
  json["policies"] = Json::array();
  for (const PolicySpec& spec : answer.request.points) json["policies"].push_back(spec.text());
  Json options;
  const ReplayRequest& r = answer.request;
  options["beams"] = r.beams;
  options["quality"] = !r.measure.recall ? "none" : r.measure.output_error ? "all" : "recall";
  options["as"] = Json::array();
  for (const ModelShape& shape : r.models) options["as"].push_back(shape.name);
  options["prompt"] = r.prompt ? Json(*r.prompt) : Json(nullptr);
  options["output"] = r.output ? Json(*r.output) : Json(nullptr);
  options["kv"] = r.kv ? Json(name_of(*r.kv)) : Json(nullptr);
  options["dtype"] = r.weights ? Json(name_of(*r.weights)) : Json(nullptr);
  json["options"] = std::move(options);
  json["quality"] = {
      {"relative_to",
       m.policy == kFullAttention
           ? "full attention over the recorded tokens, in the recorded run"
           : "full attention over all recorded tokens, with the queries of the recorded run under " + m.policy},
      {"recall",
       "share of the exact attention that falls on the attended tokens; mean over decode steps, layers, query heads"},
      {"recall_worst1", "mean of the lowest 1 % of these values, at least one"},
      {"position", "(recall - random) / (oracle - random), of mean recalls at the budget of position_bounds"},
      {"output_error",
       "|o - o'| / |o|, o' with the exact weights renormalised over the attended tokens; mean likewise"}};
  json["notes"] = replay_notes(answer);
  for (std::string& note : policy_notes(r.points, m)) json["notes"].push_back(std::move(note));
  return json;
}

}  // namespace

std::string replay_table(const ReplayAnswer& answer) {
  PolicyLabels labels;
  std::string text;
  const bool devices = !answer.request.devices.empty();
  for (std::size_t begin = 0; begin < answer.points.size();) {
    const std::string& model = answer.points[begin].model;
    std::size_t end = begin;
    while (end < answer.points.size() && answer.points[end].model == model) ++end;
    if (begin > 0) text += "\n";
    if (!model.empty()) text += title_of_model(answer, model);
    text += table_of(answer.points.subspan(begin, end - begin), labels, devices);
    if (answer.request.accounting) text += "\n" + accounting_of(answer.points.subspan(begin, end - begin), labels);
    begin = end;
  }
  if (answer.open_closed != nullptr) text += open_closed_table(*answer.open_closed);
  text += "\n";
  for (const std::string& note : labels.footnotes()) text += wrapped(note);
  for (const std::string& note : replay_notes(answer)) text += wrapped(note);
  return text;
}

std::string replay_json(const ReplayAnswer& answer) {
  Json json;
  json["points"] = Json::array();
  for (const ReplayPoint& point : answer.points) json["points"].push_back(json_of(point));
  json["policies"] = Json::array();
  for (const PointResult& result : answer.results) json["policies"].push_back(json_of(result));
  if (answer.open_closed != nullptr) json["open_closed_loop"] = json_of(*answer.open_closed);
  if (answer.row_cache != nullptr) json["row_cache"] = row_cache_json(*answer.row_cache, answer.request.points);
  json["manifest"] = manifest_json(answer);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string replay_csv(const ReplayAnswer& answer) {
  WideRows rows;
  for (const ReplayPoint& p : answer.points) {
    const PolicySpec& spec = p.result->spec;
    const Quality* q = p.quality();
    const std::optional<Prediction>& time = p.prediction;
    rows.add("point", spec.text());
    rows.add("policy", short_name(spec));
    rows.add("budget", limited(spec) ? spec.budget.text : "");
    rows.add("model", p.model);
    rows.add("device", p.device);
    rows.add("batch", p.batch);
    rows.add("kept_tokens", p.accounting.kept_tokens);
    rows.add("kv_resident_bytes", p.accounting.kv_resident);
    rows.add("kv_read_bytes", p.accounting.kv_read);
    rows.add("recall_mean", q ? std::optional(q->recall_mean) : std::nullopt);
    rows.add("recall_worst1", q ? std::optional(q->recall_worst1) : std::nullopt);
    rows.add("position", p.position());
    rows.add("output_error", q ? q->output_error : std::nullopt);
    rows.add_cells("step_ms", interval_json(time ? std::optional(time->step) : std::nullopt, 1e3));
    rows.add_cells("tokens_per_s", interval_json(time ? std::optional(time->tokens_per_s) : std::nullopt, 1));
    rows.add("largest_batch", p.largest_batch);
    rows.add("limited_by", p.limited_by);
    rows.add("kv_type", std::string(name_of(p.kv)));
    rows.end_row();
  }
  return rows.csv();
}

}  // namespace kvroof
