#include "analysis/scoreboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/published_metric.hpp"

namespace kvroof {
namespace {

bool of_states(const PublishedRow& row) { return row.model.starts_with("state update"); }

// Of a kernel by itself, by its kind of metric; empty: not known.
std::string group_of_kernel(const PublishedRow& row, std::string_view metric) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kKernels = {
      {{"product", "matrix product"},
       {"attention", "decode attention"},
       {"states", "update of states"},
       {"element-wise", "element-wise kernel"}}};
  const auto kernel = std::ranges::find(kKernels, metric, [](const auto& k) { return k.first; });
  return fmt::format("{}, {}", kernel == kKernels.end() ? "kernel" : kernel->second, row.gpu);
}

std::string group_of(const PublishedRow& row) {
  if (row.metric == "kernel_time") return group_of_kernel(row, "");
  const std::string model = row.model.substr(0, row.model.find(" ("));
  std::string group = fmt::format("{} {}, {}, {}", row.engine, row.metric, model, row.gpu);
  if (row.gpus > 1) group += fmt::format(" x {}", row.gpus);
  if (row.metric == "total_latency") group += ", output " + row.output;
  return group;
}

}  // namespace

std::string kind_of_metric(const PublishedRow& row, const PublishedSetting& s) {
  const std::string& metric = row.metric;
  if (s.part == LayerOperator::kElementwise) return "element-wise";
  const bool product = s.part && *s.part <= LayerOperator::kHead;
  if (of_kernel(row, s) && of_states(row)) return "states";
  if (of_kernel(row, s)) return product || row.model.starts_with("GEMM") ? "product" : "attention";
  if (row.level == "capacity") return "memory";
  if (s.saturated) return "saturated";
  const bool first = metric.starts_with("ttft") || metric.starts_with("first");
  if (first) {
    const double together = s.batch.value_or(1);
    const bool queued = row.batch_mode.starts_with("continuous") && together > 1;
    return queued ? "first token" : prompt_metric(together * s.input);
  }
  if (metric.starts_with("total") || metric.starts_with("e2e") || metric.find("end_to_end") != std::string::npos) {
    return "whole";
  }
  // Of a batch that runs from its prompts to its last tokens.
  if (metric.starts_with("output_tokens_per_s") && !row.batch_mode.starts_with("continuous")) return "whole";
  return "step";
}

// Rates of a device by itself and ratios of policies are no measurement of a model or kernel.
bool predictable(const PublishedRow& row) {
  return !row.level.starts_with("bandwidth") && !row.level.starts_with("eviction");
}

ScoredRow Scoreboard::score(const PublishedRow& row) const {
  ScoredRow scored;
  scored.row = &row;
  scored.group = group_of(row);
  if (!predictable(row)) {
    scored.refused = "no time or memory of a model or kernel";
    return scored;
  }
  const auto setting = catalog_.setting(row);
  if (!setting) {
    scored.refused = setting.error();
    return scored;
  }
  const PublishedSetting& s = setting.value();
  const auto predicted = predict_metric(row, s);
  if (!predicted) {
    scored.refused = predicted.error();
    return scored;
  }
  scored.predicted = predicted.value();
  scored.kind = {std::string(name_of(s.device.memory_type)), of_kernel(row, s) ? "kernel" : s.engine.name,
                 kind_of_metric(row, s), s.device.name,
                 {static_cast<double>(s.batch.value_or(0)), of_kernel(row, s) ? 0.0 : s.input + s.output,
                  static_cast<double>(s.devices)}};
  if (row.metric == "kernel_time") scored.group = group_of_kernel(row, scored.kind.metric);
  scored.kind.family = architecture_family(s.device.architecture);
  set_weights(scored.kind, s.shape, s.deployment);
  if (row.value && *row.value > 0 && possible(*scored.predicted, *row.value) != *row.value) {
    scored.doubt =
        "faster than the datasheet's bandwidth and peak allow: a warm cache, or another type, batch, layout or board "
        "than stated";
  }
  return scored;
}

IntervalTable interval_table(std::span<const ScoredRow> measured) {
  std::vector<Residual> residuals;
  for (const ScoredRow& row : measured) {
    if (!row.compared() || row.predicted->high80 <= row.predicted->value) continue;
    residuals.push_back(residual_of(row.kind, row.group, *row.predicted, *row.row->value));
  }
  return IntervalTable(std::move(residuals));
}

namespace {

bool is_left_out(LeftOut what, const ScoredRow& row, const Residual& measured) {
  const bool device = measured.kind.device == row.kind.device, engine = measured.kind.engine == row.kind.engine;
  switch (what) {
    case LeftOut::kNothing: return false;
    case LeftOut::kTable: return measured.group == row.group;
    case LeftOut::kDevice: return device;
    case LeftOut::kEngine: return engine;
    case LeftOut::kDeviceAndEngine: return device && engine;
  }
  return false;
}

}  // namespace

void set_intervals(std::span<ScoredRow> rows, const IntervalTable& table, std::optional<LeftOut> left_out) {
  for (ScoredRow& row : rows) {
    if (!row.predicted) continue;
    IntervalTable::LeftOut leaves;
    if (left_out) leaves = [&](const Residual& measured) { return is_left_out(*left_out, row, measured); };
    const IntervalFactors factors = table.factors(row.kind, leaves);
    row.predicted = with_factors(*row.predicted, factors);
    row.width_from = factors.text();
  }
}

namespace {

// Mean absolute error of the group of that name, or of those whose names go on after a comma.
Gate error_gate(std::span<const GroupScore> groups, std::string_view begin, double highest) {
  double errors = 0;
  std::size_t rows = 0;
  for (const GroupScore& g : groups) {
    if (g.group != begin && !g.group.starts_with(std::string(begin) + ", ")) continue;
    errors += g.mean_error * static_cast<double>(g.rows);
    rows += g.rows;
  }
  return {fmt::format("mean error: {}", begin), rows > 0 ? errors / static_cast<double>(rows) : 1, 0, highest};
}

}  // namespace

std::vector<Gate> gates_of(std::span<const ScoredRow> rows) {
  const std::vector<GroupScore> groups = group_scores(rows);
  std::vector<Gate> gates;
  const std::string gpt = "FasterTransformer total_latency, GPT-20B, A100-SXM4-80GB, output ";
  gates.push_back(error_gate(groups, gpt + "200", 0.03));
  gates.push_back(error_gate(groups, gpt + "20", 0.05));
  gates.push_back(error_gate(groups, gpt + "8", 0.05));
  gates.push_back(error_gate(groups, "calm decode_tokens_per_s", 0.04));
  gates.push_back(error_gate(groups, "kvroof itl_median", 0.04));
  for (const char* device : {"A100-SXM4-80GB", "H100-SXM-80GB"}) {
    gates.push_back(error_gate(groups, fmt::format("matrix product, {}", device), 0.07));
    gates.push_back(error_gate(groups, fmt::format("decode attention, {}", device), 0.10));
  }
  gates.push_back(error_gate(groups, "TensorRT-LLM tpot_mean_or_median, Llama-3.1-8B-Instruct", 0.06));
  gates.push_back(error_gate(groups, "FasterTransformer memory_used", 0.08));
  double wrong = 0;
  for (const ScoredRow& row : rows) {
    if (row.predicted && row.row->value && row.row->metric == "fits_in_memory") {
      wrong += row.predicted->value != *row.row->value ? 1 : 0;
    }
  }
  gates.push_back({"rows that ran out of memory, wrong", wrong, 0, 0});
  return gates;
}

std::vector<Gate> coverage_gates(std::span<const ScoredRow> rows) {
  struct Case {
    LeftOut left_out;
    const char* name;
  };
  constexpr std::array<Case, 2> kCases = {{{LeftOut::kTable, "their table"},
                                           {LeftOut::kDeviceAndEngine, "their device under their engine"}}};
  const IntervalTable table = interval_table(rows);
  std::vector<Gate> gates;
  for (const Case& c : kCases) {
    std::vector<ScoredRow> moved(rows.begin(), rows.end());
    set_intervals(moved, table, c.left_out);
    std::erase_if(moved, [](const ScoredRow& row) { return !row.compared(); });
    const auto share = [&](bool (ScoredRow::*within)() const) {
      const auto inside = std::count_if(moved.begin(), moved.end(), [&](const ScoredRow& r) { return (r.*within)(); });
      return static_cast<double>(inside) / static_cast<double>(std::max<std::size_t>(moved.size(), 1));
    };
    const auto what = [&](int percent) {
      return fmt::format("share of rows inside {} % intervals, {} left out", percent, c.name);
    };
    gates.push_back({what(80), share(&ScoredRow::within80), 0.72, 0.88});
    gates.push_back({what(95), share(&ScoredRow::within95), 0.90, 0.99});
  }
  return gates;
}

std::vector<GroupScore> group_scores(std::span<const ScoredRow> rows) {
  std::vector<GroupScore> groups;
  std::vector<std::vector<double>> errors;
  for (const ScoredRow& row : rows) {
    if (!row.compared()) continue;
    auto at = std::find_if(groups.begin(), groups.end(), [&](const GroupScore& g) { return g.group == row.group; });
    if (at == groups.end()) {
      at = groups.insert(groups.end(), GroupScore{row.group});
      errors.emplace_back();
    }
    GroupScore& g = *at;
    g.rows += 1;
    g.mean_error += std::fabs(row.error());
    g.bias += row.error();
    g.covered80 += row.within80() ? 1 : 0;
    g.covered95 += row.within95() ? 1 : 0;
    errors[static_cast<std::size_t>(at - groups.begin())].push_back(std::fabs(row.error()));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    GroupScore& g = groups[i];
    const auto n = static_cast<double>(g.rows);
    std::sort(errors[i].begin(), errors[i].end());
    g.p90_error = errors[i][(9 * g.rows + 9) / 10 - 1];
    for (double* x : {&g.mean_error, &g.bias, &g.covered80, &g.covered95}) *x /= n;
  }
  return groups;
}

}  // namespace kvroof
