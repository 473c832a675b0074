#include "apps/simulate/simulate_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/intervals.hpp"
#include "apps/prediction/speculation.hpp"
#include "apps/simulate/simulate_rank.hpp"
#include "sim/core/counted.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

std::string goals_text(const SimulateRequest& r) {
  std::string text;
  if (r.ttft_ms) text += fmt::format("first token within {:g} ms", *r.ttft_ms);
  if (r.tpot_ms) text += fmt::format("{}{:g} ms a token", text.empty() ? "" : " and ", *r.tpot_ms);
  return text;
}

// " in a burst of 300, which is more than lasts,": of a rate or servers found with too few requests; or nothing.
std::string burst_text(const SimulateRequest& r, const SimulatedRow& row) {
  if (!is_burst(r, row)) return {};
  const std::string burst = fmt::format(" in a burst of {}", row.outcome.requests.size());
  return burst + (r.highest_rate ? ", which is more than lasts," : ", of a rate that lasts fewer,");
}

// "16 devices, $43.0 to 76.2 an hour".
std::string costs_text(const SimulatedRow& row) {
  const std::string devices = counted(row.devices(), "device");
  const auto usd = row.usd_per_hour();
  return usd ? fmt::format("{}, ${} an hour", devices, usd_text(usd)) : devices;
}

// ", 1.46 times what it serves under full", "; under full it takes 5 of them": beside full attention on the same
// devices, where that was simulated too.
std::string beside_full(const SimulateRequest& r, const SimulatedRow& best, SimulatedRows rows) {
  for (const SimulatedRow& row : rows) {
    const bool same = row.device == best.device && row.deployment == best.deployment && &row != &best;
    const bool alike = row.best_split == best.best_split &&
                       (row.best_split || row.prefill_replicas == best.prefill_replicas);
    if (!same || !alike || !row.problem.empty() || !row.workload->policy().is_full()) continue;
    if (r.highest_rate) return fmt::format(", {:.2f} times what it serves under full", best.rate / row.rate);
    if (r.most_clients) return fmt::format("; under full it serves {}", row.clients);
    if (r.replicas != 0) return "";
    return fmt::format("; under full it takes {} of them", row.replicas);
  }
  return "";
}

// "; next 6 of h200 x 2 under full (12 devices, $38.3 to 60.1 an hour)", "; next h200 under full: 310": the best row of
// another device that meets the goals.
std::string next_text(const SimulateRequest& r, const SimulatedRow& best, SimulatedRows rows) {
  const SimulatedRow* next = nullptr;
  for (const SimulatedRow& row : rows) {
    const bool other = row.device != best.device && row.problem.empty() && row.met;
    if (other && (next == nullptr || worse(r, *next, row))) next = &row;
  }
  if (next == nullptr) return "";
  return fmt::format("; next {}{}", who_text(r, *next),
                     r.most_clients ? fmt::format(": {}", next->clients) : fmt::format(" ({})", costs_text(*next)));
}

// The best row of the same devices and policy that has servers for prompts alone where the row has none, or none where
// it has some; nothing: none was simulated.
const SimulatedRow* other_way(const SimulateRequest& r, const SimulatedRow& best, SimulatedRows rows) {
  const SimulatedRow* other = nullptr;
  for (const SimulatedRow& row : rows) {
    if (row.device != best.device || row.deployment != best.deployment || row.workload != best.workload) continue;
    if (row.disaggregated() == best.disaggregated()) continue;
    if (other == nullptr || worse(r, *other, row)) other = &row;
  }
  return other;
}

// "; without servers for prompts alone, 4 of h100-sxm: 9.28 requests/s, 0.81 times as many": whether they pay.
std::string whether_disaggregation_pays(const SimulateRequest& r, const SimulatedRow& best, SimulatedRows rows) {
  const SimulatedRow* other = other_way(r, best, rows);
  if (other == nullptr || !r.has_goals()) return "";
  const std::string way = best.disaggregated() ? "without servers for prompts alone" : "with servers for prompts alone";
  if (!other->problem.empty()) return fmt::format("; {}: {}", way, other->problem);
  const std::string who = fmt::format("; {}, {}", way, devices_text(*other));
  const std::string a_device = best.devices() == other->devices() ? "" : " for each device";
  if (r.highest_rate) {
    return fmt::format("{}: {} requests/s, {:.2f} times as many{}", who, number_text(other->rate),
                       served_by_device(r, *other) / served_by_device(r, best), a_device);
  }
  if (r.most_clients) return fmt::format("{}: {} clients", who, other->clients);
  if (r.replicas == 0) {
    return who + (a_device.empty() ? ", as many devices"
                                   : fmt::format(", {} devices in place of {}", other->devices(), best.devices()));
  }
  return fmt::format("{}: {:.1f} %", who, 100 * other->attained.value);
}

// The best row that differs in drafts: without them where this one has them, and with them where it has none. Each has
// the number of servers that was found for it.
const SimulatedRow* drafts_aside(const SimulateRequest& r, const SimulatedRow& best, SimulatedRows rows) {
  const SimulatedRow* other = nullptr;
  for (const SimulatedRow& row : rows) {
    const Deployment &a = *row.deployment, &b = *best.deployment;
    const bool same = row.device == best.device && row.workload == best.workload &&
                      (r.replicas == 0 || row.replicas == best.replicas) && a.weights.name == b.weights.name &&
                      layout_options(a) == layout_options(b) &&
                      (r.prefill.best || row.prefill_replicas == best.prefill_replicas);
    if (!same || a.speculation.has_value() == b.speculation.has_value() || !row.problem.empty()) continue;
    if (other == nullptr || worse(r, *other, row)) other = &row;
  }
  return other;
}

// "; without drafts 3.2 requests/s, 0.81 times as many": whether they pay.
std::string whether_drafts_pay(const SimulateRequest& r, const SimulatedRow& best, SimulatedRows rows) {
  const SimulatedRow* other = drafts_aside(r, best, rows);
  if (other == nullptr) return "";
  const auto& with = other->deployment->speculation;
  std::string way = with ? "with " + drafts_text(*with) : "without drafts";
  if (r.replicas == 0) return fmt::format("; {} {}", way, devices_text(*other));
  if (devices_text(*other) != devices_text(best)) way += fmt::format(", {}:", devices_text(*other));
  if (r.highest_rate) {
    return fmt::format("; {} {} requests/s, {:.2f} times as many", way, number_text(other->rate),
                       other->rate / best.rate);
  }
  const auto token_ms = [](const SimulatedRow& row) { return number_text(row.latency.token.mean.value * 1e3); };
  return fmt::format("; {} a token takes {} ms in place of {}", way, token_ms(*other), token_ms(best));
}

// "24.2 to 65.2".
std::string rates_text(const Estimate& e) {
  return std::isfinite(e.high80) ? interval_text(e, 1) : number_text(e.low80) + " or more";
}

}  // namespace

std::string numbers_text(const Estimate& e) {
  if (!std::isfinite(e.high80)) return fmt::format("{:.0f} or more", e.low80);
  return e.low80 == e.high80 ? fmt::format("{:.0f}", e.low80) : fmt::format("{:.0f} to {:.0f}", e.low80, e.high80);
}

std::string devices_text(const SimulatedRow& row) {
  const auto kind = [](const Device& device, std::uint32_t devices) {
    return devices > 1 ? fmt::format("{} x {}", device.name, devices) : device.name;
  };
  const std::string text = kind(*row.device, row.deployment->devices()) + layout_text(*row.deployment);
  if (row.prefill_replicas == 0) return row.replicas > 1 ? fmt::format("{} of {}", row.replicas, text) : text;
  const std::string prompts = kind(*row.prefill_device, row.prefill_parallel) + layout_text(*row.deployment);
  return fmt::format("{} prefill{} + {} decode of {}", row.prefill_replicas, prompts == text ? "" : " of " + prompts,
                     row.answering(), text);
}

std::string policy_text(const SimulateRequest& request, const SimulatedRow& row) {
  std::string text = request.workload.title(row.workload->policy());
  const auto& all = request.workload.deployments;
  const bool several = std::any_of(all.begin(), all.end(), [&](const Deployment& d) {
    return d.weights.name != all.front().weights.name;
  });
  if (several) text += fmt::format(", {}", row.deployment->weights.name);
  return text + with_drafts_text(*row.deployment);
}

std::string who_text(const SimulateRequest& request, const SimulatedRow& row) {
  return fmt::format("{} under {}", devices_text(row), policy_text(request, row));
}

std::string rate_with_interval(const Estimate& e) {
  return std::isfinite(e.high80) ? with_interval(e, 1) : fmt::format("{} ({})", number_text(e.value), rates_text(e));
}

std::string answer_text(const SimulateRequest& r, SimulatedRows rows) {
  const SimulatedRow* best = &best_of(r, rows);
  if (!best->problem.empty()) return fmt::format("{}: {}.", devices_text(*best), best->problem);
  const std::string who = who_text(r, *best);
  const std::string share = fmt::format("{:g} % of the requests", 100 * r.attainment);
  const std::string pays = whether_disaggregation_pays(r, *best, rows) + whether_drafts_pay(r, *best, rows);
  const std::string end = pays + "." + middle_text(*best->device, best->step_factors);
  if (r.highest_rate) {
    return fmt::format("{} serves up to {} requests/s{} (80 %: {}) with {} in time ({}){}{}", who,
                       number_text(best->rate), burst_text(r, *best), rates_text(*best->rate_interval), share,
                       goals_text(r), beside_full(r, *best, rows), end);
  }
  if (r.most_clients) {
    return fmt::format("{} serves up to {} (80 %: {}) with {} in time ({}){}{}{}", who,
                       counted(best->clients, "client"), numbers_text(*best->clients_interval), share, goals_text(r),
                       beside_full(r, *best, rows), next_text(r, *best, rows), end);
  }
  if (r.replicas == 0) {
    return fmt::format("{} {} {}{} in time ({}), 80 %: {} of them; {}{}{}{}", who, best->replicas > 1 ? "have" : "has",
                       share, burst_text(r, *best), goals_text(r), numbers_text(*best->replicas_interval),
                       costs_text(*best), beside_full(r, *best, rows), next_text(r, *best, rows), end);
  }
  std::string text = fmt::format(
      "{} answers {} requests/s, {} tokens/s; half of the first tokens come within {} ms, 99 % within {} ms", who,
      number_text(best->requests_per_s.value), number_text(best->tokens_per_s.value),
      number_text(best->latency.first_token.p50.value * 1e3), number_text(best->latency.first_token.p99.value * 1e3));
  if (r.has_goals()) {
    text += fmt::format("; {:.1f} % of the requests are in time ({})", 100 * best->attained.value, goals_text(r));
  }
  return text + end;
}

}  // namespace kvroof
