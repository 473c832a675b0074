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
#include "apps/simulate/simulate_prefix_output.hpp"
#include "apps/simulate/simulate_transfers.hpp"
#include "kvroof_version.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

// Whether any answer has a second token, so that there is a time between them.
bool has_gaps(const SimulatedRow& row) { return row.outcome.gaps.count() > 0; }

Table latency_table(const SimulateRequest& r, const std::vector<SimulatedRow>& rows) {
  Table table;
  table.columns = {{"device", "device", false},       {"policy", "policy", false},
                   {r.highest_rate ? "highest requests/s" : "requests/s", "requests_per_s"},
                   {"tokens/s", "tokens_per_s"},
                   {"TTFT p50 ms", "ttft_p50_ms"},    {"p99", "ttft_p99_ms"},
                   {"TPOT p50 ms", "tpot_p50_ms"},    {"p99", "tpot_p99_ms"}};
  if (r.has_goals()) table.columns.push_back({"in time", "attained"});
  for (const SimulatedRow& row : rows) {
    std::vector<std::string> cells = {devices_text(row), policy_text(r, row)};
    const bool priced = row.problem.empty();
    const auto latency = [&](const Estimate& e, bool there) {
      cells.push_back(there ? with_interval(e, 1e3) : "–");
    };
    const Estimate& rate = row.rate_interval ? *row.rate_interval : row.requests_per_s;
    cells.push_back(priced ? rate_with_interval(rate) : "–");
    cells.push_back(priced ? number_text(row.tokens_per_s.value) : "–");
    latency(row.latency.first_token.p50, priced);
    latency(row.latency.first_token.p99, priced);
    latency(row.latency.token.p50, priced && has_gaps(row));
    latency(row.latency.token.p99, priced && has_gaps(row));
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

std::string usd_text(const SimulatedRow& row) {
  const auto price = row.price();
  return price ? usd_range(price->low_usd, price->high_usd) : "–";
}

Table load_table(const SimulateRequest& r, const std::vector<SimulatedRow>& rows) {
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
                          std::to_string(row.outcome.waiting_at_end), usd_text(row)});
    const bool steps = row.outcome.totals.answer_steps > 0;
    if (drafts) table.rows.back().push_back(steps ? number_text(tokens_a_step(row)) : "–");
  }
  return table;
}

Table found_table(const SimulateRequest& r, const std::vector<SimulatedRow>& rows) {
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

// Where intervals are from, and what sets the upper ends of the slowest requests.
std::string intervals_note(const SimulateRequest& r, const std::vector<SimulatedRow>& rows) {
  std::string text = "intervals: all steps and prompts at the ends of their own intervals, and at least as wide as "
                     "measured runs of servers lie from simulated ones";
  if (r.cold) {
    text += " in their first minute";
  } else if (r.workload.model.experts > 0) {
    text += "; first minutes of servers of experts are far slower (--cold)";
  }
  std::string wide;
  for (const SimulatedRow& row : rows) {
    if (!row.problem.empty()) continue;
    const RequestEstimates& l = row.latency;
    wide += fmt::format("{}{}first tokens {}, ", wide.empty() ? "" : "; ",
                        rows.size() == 1 ? "" : fmt::format("{} under {}: ", devices_text(row), policy_text(r, row)),
                        name_of(l.first_token.p99_wide_by));
    if (has_gaps(row)) wide += fmt::format("tokens {}, ", name_of(l.token.p99_wide_by));
    wide += fmt::format("answers {}", name_of(l.whole.p99_wide_by));
  }
  return wide.empty() ? text : fmt::format("{}. What makes p99 wide: {}", text, wide);
}

// Servers that answers outlast have not filled when the last request comes; empty: they have.
std::string too_short(const SimulateRequest& r, const SimulatedRow& row) {
  const auto count = static_cast<double>(row.outcome.requests.size());
  const double wanted = lasting_count(row);
  if (!r.lasts || count >= wanted || row.falls_behind()) return {};
  const std::string found = r.highest_rate    ? ": the rate that was found is that of a burst, more than lasts;"
                            : r.replicas == 0 ? ": the servers that were found bear a burst, not a rate that lasts;"
                                              : ";";
  return fmt::format("{} under {}: requests came for {:.0f} s and an answer took {:.0f} s, so that servers were still "
                     "filling when the last came{} more requests{} ask more of them",
                     devices_text(row), policy_text(r, row), count / row.rate, row.latency.whole.mean.value, found,
                     r.drawn ? fmt::format(" (--count {:.0f})", std::ceil(wanted / 1000) * 1000) : "");
}

// Servers that keep up answer as many requests as come, but for two edges of a short run: arrivals that are drawn are
// seldom as many as asked for, and the last answer is waited for; empty: they hardly matter.
std::string edges(const SimulateRequest& r, const SimulatedRow& row) {
  constexpr double kHardly = 0.02;
  const double served = row.requests_per_s.value;
  if (r.asked_rate == 0 || row.rate <= 0 || row.falls_behind() || row.refused > 0) return {};
  if (std::abs(served / r.asked_rate - 1) <= kHardly) return {};
  const std::string count = r.drawn ? " (--count)" : "";
  if (row.rate < (1 - kHardly) * r.asked_rate) {
    return fmt::format("{} under {}: the {} requests came at {} a second, fewer than --rate {:g}, and servers kept up "
                       "with those; whether they do with --rate takes more requests{}",
                       devices_text(row), policy_text(r, row), row.outcome.requests.size(), number_text(row.rate),
                       r.asked_rate, count);
  }
  return fmt::format("{} under {}: servers keep up, though {} requests/s are not those of --rate {:g}: the {} requests "
                     "came at {} a second, and the last answer is waited for; more requests{} come nearer",
                     devices_text(row), policy_text(r, row), number_text(served), r.asked_rate,
                     row.outcome.requests.size(), number_text(row.rate), count);
}

// Clients whose requests are all alike come back together, so that groups never fall out of step; empty: they do.
std::string in_step(const SimulateRequest& r, const std::vector<SimulatedRow>& rows) {
  const auto grouped = [](const SimulatedRow& row) { return row.deployment->data_parallel > 1; };
  const auto alike = [&](const Request& a) {
    return a.prompt == r.requests.front().prompt && a.output == r.requests.front().output;
  };
  if (r.clients < 2 || std::ranges::none_of(rows, grouped) || !std::ranges::all_of(r.requests, alike)) return {};
  return fmt::format("requests are all alike, so that groups compute the prompts of {} clients in the same steps for "
                     "as long as they ask; lengths that vary{} drive groups apart, and each then waits for the prompts "
                     "of all others", r.clients, r.drawn ? " (--spread 0.3)" : "");
}

std::vector<std::string> notes_of(const SimulateRequest& r, const std::vector<SimulatedRow>& rows) {
  std::vector<std::string> notes = {fmt::format(
      "{}{}", r.requests_text,
      r.clients == 1  ? "; one client sends the next when it is answered"
      : r.clients > 1 ? fmt::format("; {} clients send the next when they are answered", r.clients)
                      : "")};
  if (r.without_answer > 0) {
    notes.push_back(r.without_answer == 1
                        ? "one request of the file has no answer or no prompt and is left out"
                        : fmt::format("{} requests of the file have no answer or no prompt and are left out",
                                      r.without_answer));
  }
  for (const SimulatedRow& row : rows) {
    const std::string who = fmt::format("{} under {}", devices_text(row), policy_text(r, row));
    if (!row.problem.empty()) notes.push_back(fmt::format("{}: {}", who, row.problem));
    if (row.problem.empty() && row.refused > 0) {
      notes.push_back(fmt::format("{}: {} of {} requests {} on a server by {} refused and in time for no goal", who,
                                  row.refused, r.requests.size(), row.refused == 1 ? "does not fit" : "do not fit",
                                  row.refused == 1 ? "itself; it is" : "themselves; they are"));
    }
    if (row.problem.empty()) {
      std::string text = too_short(r, row);
      if (text.empty()) text = edges(r, row);
      if (!text.empty()) notes.push_back(std::move(text));
    }
    if (row.problem.empty() && row.falls_behind()) {
      notes.push_back(fmt::format("{}: requests come faster than they are answered ({} waited when the last came); how "
                                  "long they wait depends on how long that lasts{}", who, row.outcome.waiting_at_end,
                                  r.highest_rate ? ", and so does the highest rate: more requests have a lower one"
                                                 : ""));
    }
  }
  std::vector<const Device*> devices;
  for (const SimulatedRow& row : rows) devices.push_back(row.device);
  for (std::string& note : workload_notes(r.workload, devices)) notes.push_back(std::move(note));
  if (std::string note = in_step(r, rows); !note.empty()) notes.push_back(std::move(note));
  for (std::string& note : transfer_notes(r, rows)) notes.push_back(std::move(note));
  for (std::string& note : prefix_notes(r, rows)) notes.push_back(std::move(note));
  for (const SimulatedRow& row : rows) devices.push_back(row.prefill_device);
  if (const std::string prices = prices_text(devices); !prices.empty()) {
    notes.push_back(fmt::format("$: of a million generated tokens at the rate that is served, {}", prices));
  }
  notes.push_back(intervals_note(r, rows));
  return notes;
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
  const bool gaps = has_gaps(row);
  return {{"arrival_rate_per_s", if_any(row.rate > 0, row.rate)},
          {"highest_rate_per_s", ends_json(row.rate_interval, 1)},
          {"fewest_replicas", ends_json(row.replicas_interval, 1)},
          {"seconds", row.outcome.seconds},
          {"requests_per_s", ends_json(row.requests_per_s, 1)},
          {"tokens_per_s", ends_json(row.tokens_per_s, 1)},
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

std::string simulate_table(const SimulateRequest& request, const std::vector<SimulatedRow>& rows) {
  std::string text = format_paragraph(answer_text(request, rows), 0) + "\n";
  text += format_table(latency_table(request, rows)) + "\n";
  const Table load = load_table(request, rows);
  if (!load.rows.empty()) text += format_table(load) + "\n";
  const Table transfers = transfers_table(request, rows);
  if (!transfers.rows.empty()) text += format_table(transfers) + "\n";
  if (!load.rows.empty() && request.prefix_cache) text += format_table(found_table(request, rows)) + "\n";
  for (const std::string& note : notes_of(request, rows)) text += format_paragraph(note, 0);
  return text;
}

std::string simulate_json(const SimulateRequest& request, const std::vector<SimulatedRow>& rows) {
  Json json = {{"answer", answer_text(request, rows)},
               {"model", request.workload.model.name},
               {"requests", request.requests.size()},
               {"clients", request.clients > 0 ? Json(request.clients) : Json(nullptr)},
               {"ttft_goal_ms", request.ttft_ms ? Json(*request.ttft_ms) : Json(nullptr)},
               {"tpot_goal_ms", request.tpot_ms ? Json(*request.tpot_ms) : Json(nullptr)},
               {"attainment_goal", request.attainment},
               {"rows", Json::array()}};
  for (const SimulatedRow& row : rows) {
    Json nested = row_json(request, row);
    nested["prefill"].update(nested["transfers"]);
    nested.erase("transfers");
    json["rows"].push_back(folded(std::move(nested)));
  }
  json["notes"] = notes_of(request, rows);
  json["version"] = kVersion;
  return json.dump(2) + "\n";
}

std::string simulate_csv(const SimulateRequest& request, const std::vector<SimulatedRow>& all) {
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

std::string simulate_svg(const SimulateRequest& request, const std::vector<SimulatedRow>& rows) {
  LineChart chart{fmt::format("{}: {}", request.workload.model.name, request.requests_text),
                  {"first token within (ms)", true, false, LogTicks::kDecimal},
                  {"share of the requests (%)", false, true},
                  {}};
  for (const SimulatedRow& row : rows) {
    if (!row.problem.empty()) continue;
    std::vector<double> times;
    for (const ServedRequest& r : row.outcome.requests) times.push_back((r.first_token - r.request.arrival) * 1e3);
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
