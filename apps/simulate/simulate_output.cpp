#include "apps/simulate/simulate_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "analysis/plot.hpp"
#include "apps/cli/table.hpp"
#include "apps/cli/wide_rows.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/speculation.hpp"
#include "apps/simulate/simulate_answer.hpp"
#include "apps/simulate/simulate_notes.hpp"
#include "apps/simulate/simulate_prefix_output.hpp"
#include "apps/simulate/simulate_rank.hpp"
#include "apps/simulate/simulate_transfers.hpp"
#include "kvroof_version.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

Table latency_table(const SimulateRequest& r, SimulatedRows rows) {
  Table table;
  table.columns = {{"device", "device", false},       {"policy", "policy", false},
                   {r.highest_rate ? "highest requests/s" : "requests/s", "requests_per_s"},
                   {"tokens/s", "tokens_per_s"},
                   {"TTFT p50 ms", "ttft_p50_ms"},    {"p99", "ttft_p99_ms"},
                   {"TPOT p50 ms", "tpot_p50_ms"},    {"p99", "tpot_p99_ms"}};
  if (r.most_clients) table.columns.insert(table.columns.begin() + 2, {"clients, 80 %", "most_clients"});
  if (r.has_goals()) table.columns.push_back({"in time", "attained"});
  for (const SimulatedRow& row : rows) {
    std::vector<std::string> cells = {devices_text(row), policy_text(r, row)};
    const bool priced = row.problem.empty();
    const auto latency = [&](const Estimate& e, bool there) {
      cells.push_back(there ? with_interval(e, 1e3) : "–");
    };
    if (r.most_clients) {
      const auto& e = row.clients_interval;
      cells.push_back(e ? fmt::format("{:.0f} ({})", e->value, numbers_text(*e)) : "–");
    }
    const Estimate& rate = row.rate_interval ? *row.rate_interval : row.requests_per_s;
    cells.push_back(priced ? rate_with_interval(rate) : "–");
    cells.push_back(priced ? number_text(row.tokens_per_s.value) : "–");
    latency(row.latency.first_token.p50, priced);
    latency(row.latency.first_token.p99, priced);
    latency(row.latency.token.p50, priced && row.has_gaps());
    latency(row.latency.token.p99, priced && row.has_gaps());
    if (r.has_goals()) cells.push_back(priced ? fmt::format("{:.1f} %", 100 * row.attained.value) : "–");
    table.rows.push_back(std::move(cells));
  }
  return table;
}

double busy_share(const SimulatedRow& row) {
  return row.outcome.totals.busy_seconds / (row.outcome.seconds * row.answering());
}
// Servers of answers alone have nothing to do where no answer has a second token.
double over_busy(const SimulatedRow& row, double sum) {
  return sum > 0 ? sum / row.outcome.totals.busy_seconds : 0;
}
double mean_running(const SimulatedRow& row) { return over_busy(row, row.outcome.totals.running_seconds); }
double mean_cache(const SimulatedRow& row) {
  return over_busy(row, row.outcome.totals.cache_byte_seconds) / row.cache_capacity;
}
double most_cache(const SimulatedRow& row) { return row.outcome.totals.most_cache_bytes / row.cache_capacity; }
// Tokens of an answer that a step made on average.
double tokens_a_step(const SimulatedRow& row) {
  const Replica::Totals& t = row.outcome.totals;
  return t.answer_steps > 0 ? static_cast<double>(t.answer_tokens) / static_cast<double>(t.answer_steps) : 0;
}
std::uint64_t preemptions(const SimulatedRow& row) {
  std::uint64_t sum = 0;
  for (const ServedRequest& request : row.outcome.requests) sum += request.preemptions;
  return sum;
}

KvType kv_of(const SimulateRequest& r, const SimulatedRow& row) {
  return r.workload.with_cache_of(row.workload->policy(), *row.deployment).types.kv;
}

// What it takes to meet the goals, of servers that were looked for.
Table servers_table(const SimulateRequest& r, SimulatedRows rows) {
  Table table;
  table.columns = {{"device", "device", false},    {"policy", "policy", false},
                   {"servers, 80 %", "fewest_replicas"}, {"devices", "devices"},
                   {"$ an hour", "usd_per_hour"},  {"in time", "attained"},
                   {"TTFT p90 ms", "ttft_p90_ms"}, {"TPOT p90 ms", "tpot_p90_ms"},
                   {"KV memory at most", "most_cache_share"}};
  for (const SimulatedRow& row : rows) {
    if (!row.problem.empty()) continue;
    table.rows.push_back({devices_text(row), policy_text(r, row), numbers_text(*row.replicas_interval),
                          std::to_string(row.devices()), usd_text(row.usd_per_hour()),
                          fmt::format("{:.1f} %", 100 * row.attained.value),
                          number_text(row.latency.first_token.p90.value * 1e3),
                          row.has_gaps() ? number_text(row.latency.token.p90.value * 1e3) : "–",
                          fmt::format("{:.0f} %", 100 * most_cache(row))});
  }
  return table;
}

Table load_table(const SimulateRequest& r, SimulatedRows rows) {
  Table table;
  table.columns = {{"device", "device", false},        {"policy", "policy", false},
                   {"run at once", "mean_running"},
                   {"at most", "most_running"},        {"KV memory", "mean_cache_share"},
                   {"at most", "most_cache_share"},    {"preempted", "preemptions"},
                   {"waiting at the end", "waiting_at_end"},
                   {"$ of a million tokens", "usd"}};
  const bool drafts = drafts_anything(r.workload.deployments);
  if (drafts) table.columns.push_back({"tokens a step", "tokens_a_step"});
  for (const SimulatedRow& row : rows) {
    if (!row.problem.empty()) continue;
    table.rows.push_back({devices_text(row), policy_text(r, row), number_text(mean_running(row)),
                          std::to_string(row.outcome.totals.most_running),
                          fmt::format("{:.0f} %", 100 * mean_cache(row)),
                          fmt::format("{:.0f} %", 100 * most_cache(row)), std::to_string(preemptions(row)),
                          std::to_string(row.outcome.waiting_at_end), usd_text(row.price())});
    const bool steps = row.outcome.totals.answer_steps > 0;
    if (drafts) table.rows.back().push_back(steps ? number_text(tokens_a_step(row)) : "–");
  }
  return table;
}

// What goals are often of, without intervals.
Table percentile_table(const SimulateRequest& r, SimulatedRows rows) {
  Table table;
  table.columns = {{"device", "device", false}, {"policy", "policy", false}, {"TTFT p90 ms", "ttft_p90_ms"},
                   {"p95", "ttft_p95_ms"},      {"TPOT p90 ms", "tpot_p90_ms"}, {"p95", "tpot_p95_ms"},
                   {"answer p50 s", "e2e_p50_s"}, {"p95", "e2e_p95_s"}, {"p99", "e2e_p99_s"}};
  for (const SimulatedRow& row : rows) {
    if (!row.problem.empty()) continue;
    const RequestEstimates& l = row.latency;
    const auto text = [](const Estimate& e, double scale) { return number_text(e.value * scale); };
    const auto token = [&](const Estimate& e) { return row.has_gaps() ? text(e, 1e3) : std::string("–"); };
    table.rows.push_back({devices_text(row), policy_text(r, row), text(l.first_token.p90, 1e3),
                          text(l.first_token.p95, 1e3), token(l.token.p90), token(l.token.p95), text(l.whole.p50, 1),
                          text(l.whole.p95, 1), text(l.whole.p99, 1)});
  }
  return table;
}

Table found_table(const SimulateRequest& r, SimulatedRows rows) {
  Table table;
  table.columns = {{"device", "device", false}, {"policy", "policy", false}};
  for (Table::Column& column : prefix_columns(r)) table.columns.push_back(std::move(column));
  for (const SimulatedRow& row : rows) {
    if (!row.problem.empty()) continue;
    table.rows.push_back({devices_text(row), policy_text(r, row)});
    for (std::string& cell : prefix_cells(r, row)) table.rows.back().push_back(std::move(cell));
  }
  return table;
}

// A value with the ends of its intervals. Those of a simulation mix the terms of many steps: none is said to dominate.
Json ends_json(const std::optional<Estimate>& e, double scale) {
  Json json = interval_json(e, scale);
  json.erase("dominated_by");
  return json;
}

Json latency_json(bool there, const LatencyEstimates& l) {
  return if_any(there, {{"mean", ends_json(l.mean, 1e3)},
                        {"p50", ends_json(l.p50, 1e3)},
                        {"p90", ends_json(l.p90, 1e3)},
                        {"p95", ends_json(l.p95, 1e3)},
                        {"p99", ends_json(l.p99, 1e3)}});
}

// Of requests that were served.
Json figures_json(const SimulateRequest& r, const SimulatedRow& row) {
  const RequestEstimates& l = row.latency;
  const bool gaps = row.has_gaps();
  return {{"arrival_rate_per_s", if_any(row.rate > 0, row.rate)},
          {"highest_rate_per_s", ends_json(row.rate_interval, 1)},
          {"clients", if_any(row.clients > 0, row.clients)},
          {"most_clients", ends_json(row.clients_interval, 1)},
          {"fewest_replicas", ends_json(row.replicas_interval, 1)},
          {"devices", row.devices()},
          {"usd_per_hour", price_json(row.usd_per_hour())},
          {"seconds", row.outcome.seconds},
          {"requests_per_s", ends_json(row.requests_per_s, 1)},
          {"tokens_per_s", ends_json(row.tokens_per_s, 1)},
          {"lasting_tokens_per_s", row.lasting_tokens_per_s()},
          {"ttft_ms", latency_json(true, l.first_token)},
          {"tpot_ms", latency_json(gaps, l.token)},
          {"itl_ms", latency_json(gaps, l.gap)},
          {"e2e_ms", latency_json(true, l.whole)},
          {"p99_wide_by",
           {{"ttft", name_of(l.first_token.p99_wide_by)},
            {"tpot", if_any(gaps, name_of(l.token.p99_wide_by))},
            {"itl", if_any(gaps, name_of(l.gap.p99_wide_by))},
            {"e2e", name_of(l.whole.p99_wide_by)}}},
          {"attained", ends_json(row.attained, 1)},
          {"steps", row.outcome.totals.steps},
          {"busy_share", busy_share(row)},
          {"mean_running", mean_running(row)},
          {"most_running", row.outcome.totals.most_running},
          {"cache_capacity_bytes", row.cache_capacity},
          {"mean_cache_share", mean_cache(row)},
          {"most_cache_share", most_cache(row)},
          {"preemptions", preemptions(row)},
          {"waiting_at_end", row.outcome.waiting_at_end},
          {"falls_behind", row.falls_behind()},
          {"burst", is_burst(r, row)},
          {"refused_requests", row.refused},
          {"usd_per_million_tokens", price_json(row.price())},
          {"prefill", prefill_json(row)},
          {"transfers", transfers_json(r, row)},
          {"prefix_cache", prefix_json(r, row)},
          {"intervals_from", row.interval_from}};
}

Json row_json(const SimulateRequest& r, const SimulatedRow& row) {
  const bool priced = row.problem.empty();
  Json json = {{"model", r.workload.model.name},
               {"device", row.device->name},
               {"engine", r.workload.engine_text(*row.device)},
               {"policy", row.workload->policy().text()},
               {"weight_type", row.deployment->weights.name},
               {"kv_type", name_of(kv_of(r, row))}};
  add_layout(json, *row.deployment);
  json.update({{"replicas", row.replicas},
               {"prefill_replicas", row.prefill_replicas},
               {"problem", if_any(!priced, row.problem)},
               {"meets_goals", row.met}});
  json.update(if_any(priced, figures_json(r, row)));
  if (drafts_anything(r.workload.deployments)) {
    json["drafts"] = drafts_or_none(*row.deployment);
    json["tokens_a_step"] = if_any(priced && row.outcome.totals.answer_steps > 0, tokens_a_step(row));
  }
  return json;
}

}  // namespace

std::string simulate_table(const SimulateRequest& request, SimulatedRows rows) {
  std::string text = format_paragraph(answer_text(request, rows), 0) + "\n";
  const auto add = [&](const Table& table) {
    if (!table.rows.empty()) text += format_table(table) + "\n";
  };
  const SimulatedRows shown = shown_rows(request, rows);
  if (request.replicas == 0) add(servers_table(request, rows));
  add(latency_table(request, request.replicas == 0 ? shown : rows));
  add(percentile_table(request, shown));
  add(load_table(request, shown));
  add(transfers_table(request, shown));
  if (request.prefix_cache) add(found_table(request, shown));
  for (const std::string& note : simulate_notes(request, rows)) text += format_paragraph(note, 0);
  return text;
}

std::string simulate_json(const SimulateRequest& request, SimulatedRows rows) {
  Json json = {{"answer", answer_text(request, rows)},
               {"model", request.workload.model.name},
               {"requests", request.sent},
               {"clients", request.clients > 0 && !request.most_clients ? Json(request.clients) : Json(nullptr)},
               {"turns", request.turns},
               {"message_tokens", if_any(request.in_conversations(), request.message)},
               {"thoughts", if_any(request.in_conversations(), request.thoughts)},
               {"think_s", if_any(request.clients > 0 || request.in_conversations(), request.pause)},
               {"ttft_goal_ms", request.ttft_ms ? Json(*request.ttft_ms) : Json(nullptr)},
               {"tpot_goal_ms", request.tpot_ms ? Json(*request.tpot_ms) : Json(nullptr)},
               {"attainment_goal", request.attainment},
               {"warm_up_requests", request.most_clients ? Json(nullptr) : Json(request.warm_up_of(request.clients))},
               {"rows", Json::array()}};
  for (const SimulatedRow& row : rows) {
    Json nested = row_json(request, row);
    nested["prefill"].update(nested["transfers"]);
    nested.erase("transfers");
    json["rows"].push_back(folded(std::move(nested)));
  }
  json["notes"] = simulate_notes(request, rows);
  json["version"] = kVersion;
  return json.dump(2) + "\n";
}

std::string simulate_csv(const SimulateRequest& request, SimulatedRows all) {
  WideRows rows;
  for (const SimulatedRow& row : all) {
    Json cells = row_json(request, row);
    const Json wide_by = cells["p99_wide_by"];
    cells.erase("p99_wide_by");
    for (const auto& [name, by] : wide_by.items()) cells[name + "_p99_wide_by"] = by;
    cells["prefill"].erase("replicas");  // which the row has
    unnest(cells, "transfers");
    rows.add_cells(cells);
    rows.end_row();
  }
  return rows.csv();
}

std::string simulate_svg(const SimulateRequest& request, SimulatedRows rows) {
  LineChart chart{fmt::format("{}: {}", request.workload.model.name, request.requests_text),
                  {"first token within (ms)", true, false, LogTicks::kDecimal},
                  {"share of the requests (%)", false, true},
                  {}};
  for (const SimulatedRow& row : shown_rows(request, rows)) {
    if (!row.problem.empty()) continue;
    std::vector<double> times;
    for (const ServedRequest& r : std::span(row.outcome.requests).subspan(row.outcome.warm_up)) {
      times.push_back((r.first_token - r.request.arrival) * 1e3);
    }
    std::sort(times.begin(), times.end());
    PlotLine line{fmt::format("{}, {}", devices_text(row), policy_text(request, row)), {}, {}, false};
    const std::size_t points = std::min<std::size_t>(times.size(), 400);  // the last of which is all requests
    for (std::size_t i = 1; i <= points; ++i) {
      const std::size_t count = i * times.size() / points;
      line.x.push_back(times[count - 1]);
      line.y.push_back(static_cast<double>(count) / static_cast<double>(times.size()));
    }
    chart.lines.push_back(std::move(line));
  }
  return line_chart_svg(chart);
}

}  // namespace kvroof
