#include "apps/simulate/simulate_transfers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/analysis.hpp"
#include "apps/cli/wide_rows.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/speculation.hpp"
#include "apps/simulate/simulate_answer.hpp"
#include "sim/core/number_text.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

constexpr double kFullLink = 0.9;  // busy for so much of the time, a link makes caches wait for each other

// Means over the caches that moved, and shares of the time of the whole simulation.
struct TransferFigures {
  double bytes = 0;                 // of all devices of a server
  double wait = 0, seconds = 0;     // for a place, and for the link before it; on its way
  double link_busy = 0;             // of the links of the kind of servers that are fewer
  double prefill_busy = 0, decode_busy = 0;
  double prefill_cache = 0;         // of the memory for caches of a server of prompts, at most
};

double moved_bytes(const SimulatedRow& row, const ServedRequest& r) {
  return r.transfer.bytes * std::min(row.prefill_parallel, row.deployment->tensor_parallel);
}

TransferFigures figures_of(const SimulatedRow& row) {
  TransferFigures f;
  double moved = 0;
  for (const ServedRequest& r : row.outcome.requests) {
    if (r.transfer.ended < 0) continue;
    ++moved;
    f.bytes += moved_bytes(row, r);
    f.wait += r.transfer.begun - r.first_token;
    f.seconds += r.transfer.ended - r.transfer.begun;
  }
  for (double* sum : {&f.bytes, &f.wait, &f.seconds}) *sum /= std::max(moved, 1.0);
  const ServingOutcome& o = row.outcome;
  f.link_busy = o.link_seconds / (o.seconds * std::min(row.prefill_replicas, row.answering()));
  f.prefill_busy = o.prompt_totals.busy_seconds / (o.seconds * row.prefill_replicas);
  f.decode_busy = o.totals.busy_seconds / (o.seconds * row.answering());
  f.prefill_cache = o.prompt_totals.most_cache_bytes / row.prefill_capacity;
  return f;
}

bool has_transfers(const SimulatedRow& row) { return row.problem.empty() && row.prefill_replicas > 0; }

std::string transfer_cells(const SimulatedRow& row, const ServedRequest& r) {
  std::string text = fmt::format("{},{},", row.prefill_replicas, r.transfer.from);
  if (r.transfer.ended < 0) return text + ",,";
  return text + fmt::format("{:.6f},{:.6f},{:.0f}", r.transfer.begun, r.transfer.ended, moved_bytes(row, r));
}

// "50 GB/s a device and are there 2 ms"; where devices differ, of each: "… 2 ms (h100-sxm); 32 GB/s … 2 ms (l4)".
std::string links_text(const SimulateRequest& request, SimulatedRows rows) {
  std::vector<std::pair<TransferLink, std::vector<std::string>>> links;  // and the devices that have them
  for (const SimulatedRow& row : rows) {
    if (!has_transfers(row)) continue;
    const TransferLink link = request.link_on(*row.device);
    auto same = std::find_if(links.begin(), links.end(), [&](const auto& l) { return l.first == link; });
    if (same == links.end()) same = links.insert(same, {link, {}});
    add_new(same->second, row.device->name);
  }
  std::string text;
  for (const auto& [link, devices] : links) {
    text += fmt::format("{}{:g} GB/s a device and are there {:g} ms", text.empty() ? "" : "; ", link.bytes_per_s * 1e-9,
                        link.latency_seconds * 1e3);
    if (links.size() > 1) text += fmt::format(" ({})", join(devices));
  }
  return text;
}

// What of the links nobody said.
std::string assumed_text(const PrefillRequest& prefill) {
  if (prefill.transfer_gbs && prefill.transfer_ms) return "";
  if (prefill.transfer_gbs) return ", of which the latter is assumed (--transfer-ms)";
  if (prefill.transfer_ms) return ", of which the former is assumed (--transfer-gbs)";
  return ", which is assumed (--transfer-gbs, --transfer-ms)";
}

}  // namespace

Table transfers_table(const SimulateRequest& request, SimulatedRows rows) {
  Table table;
  table.columns = {{"device", "device", false},       {"policy", "policy", false},
                   {"prefill busy", "prefill_busy"},  {"decode busy", "decode_busy"},
                   {"KV moved MB", "moved_mb"},       {"wait for it ms", "place_wait_ms"},
                   {"on its way ms", "transfer_ms"},  {"links busy", "link_busy"}};
  for (const SimulatedRow& row : rows) {
    if (!has_transfers(row)) continue;
    const TransferFigures f = figures_of(row);
    table.rows.push_back({devices_text(row), policy_text(request, row), percent_text(f.prefill_busy, 0),
                          percent_text(f.decode_busy, 0), number_text(f.bytes * 1e-6), number_text(f.wait * 1e3),
                          number_text(f.seconds * 1e3), percent_text(f.link_busy, 0)});
  }
  return table;
}

nlohmann::ordered_json prefill_json(const SimulatedRow& row) {
  const TransferFigures f = figures_of(row);
  return if_any(has_transfers(row), {{"device", row.prefill_device->name},
                                     {"tensor_parallel", row.prefill_parallel},
                                     {"replicas", row.prefill_replicas},
                                     {"busy_share", f.prefill_busy},
                                     {"most_cache_share", f.prefill_cache}});
}

nlohmann::ordered_json transfers_json(const SimulateRequest& request, const SimulatedRow& row) {
  const TransferFigures f = figures_of(row);
  const TransferLink link = request.link_on(*row.device);
  return if_any(has_transfers(row), {{"transfer_gb_per_s", link.bytes_per_s * 1e-9},
                                     {"transfer_latency_ms", link.latency_seconds * 1e3},
                                     {"moved_bytes_mean", f.bytes},
                                     {"place_wait_ms_mean", f.wait * 1e3},
                                     {"transfer_ms_mean", f.seconds * 1e3},
                                     {"link_busy_share", f.link_busy}});
}

std::vector<std::string> transfer_notes(const SimulateRequest& request, SimulatedRows rows) {
  if (std::none_of(rows.begin(), rows.end(), has_transfers)) return {};
  std::vector<std::string> notes = {
      fmt::format("caches move at {} after their last byte{}; no interval is put on that", links_text(request, rows),
                  assumed_text(request.prefill)),
      "first tokens are those of the servers of prompts; the wait for a place and the way of the cache are in the gap "
      "to the second token, in TPOT and in E2E"};
  for (const SimulatedRow& r : rows) {
    if (!has_transfers(r) || figures_of(r).link_busy < kFullLink) continue;
    notes.push_back(fmt::format("{}: the links are what limits, busy {} of the time", who_text(request, r),
                                percent_text(figures_of(r).link_busy, 0)));
  }
  return notes;
}

std::string requests_csv(const SimulateRequest& request, SimulatedRows rows) {
  std::string text = "device,policy,weight_type,tensor_parallel,request,arrival_s,prompt,output,"
                     "replica,placed_s,first_token_s,finished_s,preemptions,cached,prefill_replicas,prefill_replica,"
                     "transfer_begun_s,transfer_ended_s,moved_bytes,expert_parallel,kv_type,drafts,"
                     "pipeline_stages,data_parallel,group,conversation,turn\n";
  for (const SimulatedRow& row : rows) {
    const std::string who = fmt::format("{},{},{},{}", csv_field(row.device->name),
                                        csv_field(request.workload.title(row.workload->policy())),
                                        csv_field(std::string(row.deployment->weights.name)),
                                        row.deployment->tensor_parallel);
    const Deployment deployment = request.workload.with_cache_of(row.workload->policy(), *row.deployment);
    const std::string last =
        fmt::format(",{},{},{},{},{}", deployment.expert_parallel, name_of(deployment.types.kv),
                    csv_field(drafts_or_none(deployment)), deployment.stages, deployment.data_parallel);
    for (std::size_t i = 0; i < row.outcome.requests.size(); ++i) {
      const ServedRequest& r = row.outcome.requests[i];
      // An answer of one token never comes to a server of answers.
      const bool answered = row.prefill_replicas == 0 || r.transfer.ended >= 0;
      text += fmt::format("{},{},{:.6f},{},{},{},{:.6f},{:.6f},{:.6f},{},{},", who, row.number_of(i),
                          r.request.arrival,
                          r.request.prompt, r.request.output, answered ? std::to_string(r.replica) : "", r.placed,
                          r.first_token, r.finished, r.preemptions, r.cached);
      text += row.prefill_replicas == 0 ? "0,,,," : transfer_cells(row, r);
      text += fmt::format("{},{},{},{}\n", last, answered ? std::to_string(r.group) : "",
                          request.in_conversations() ? std::to_string(r.request.conversation) : "", r.request.turn);
    }
  }
  return text;
}

}  // namespace kvroof
