#include "apps/simulate/simulate_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/prediction/estimate_text.hpp"
#include "apps/prediction/speculation.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

std::string goals_text(const SimulateRequest& r) {
  std::string text;
  if (r.ttft_ms) text += fmt::format("first token within {:g} ms", *r.ttft_ms);
  if (r.tpot_ms) text += fmt::format("{}{:g} ms a token", text.empty() ? "" : " and ", *r.tpot_ms);
  return text;
}

// What a row serves on each device: requests a second, or a share of those there are.
double served_by_device(const SimulateRequest& r, const SimulatedRow& row) {
  return (r.highest_rate ? row.rate : r.replicas == 0 ? 1 : row.attained.value) / row.devices();
}

// What rows are compared by: those that meet the goals come first, and of them the one that serves most on each device.
std::pair<bool, double> standing(const SimulateRequest& r, const SimulatedRow& row) {
  return {row.problem.empty() && row.met, served_by_device(r, row)};
}

// Whether a row is worse; of those that stand alike the one that makes fewer tokens/s.
bool worse(const SimulateRequest& r, const SimulatedRow& a, const SimulatedRow& b) {
  const auto worth = [&](const SimulatedRow& row) { return std::pair(standing(r, row), row.tokens_per_s.value); };
  return worth(a) < worth(b);
}

// Tokens/s of requests that come by themselves differ by no more than how soon the last answer ends: of rows within 1 %
// of the first the one whose first tokens come soonest.
const SimulatedRow& best_of(const SimulateRequest& r, const std::vector<SimulatedRow>& rows) {
  const auto first = std::max_element(rows.begin(), rows.end(),
                                      [&](const SimulatedRow& a, const SimulatedRow& b) { return worse(r, a, b); });
  const SimulatedRow* best = &*first;
  for (const SimulatedRow& row : rows) {
    const bool alike = row.problem.empty() && standing(r, row) == standing(r, *first) &&
                       row.tokens_per_s.value >= 0.99 * first->tokens_per_s.value;
    if (alike && row.latency.first_token.p50.value < best->latency.first_token.p50.value) best = &row;
  }
  return *best;
}

// ", 1.46 times what it serves under full": beside full attention on the same devices, where that was simulated too.
std::string beside_full(const SimulatedRow& best, const std::vector<SimulatedRow>& rows) {
  for (const SimulatedRow& row : rows) {
    const bool same = row.device == best.device && row.deployment == best.deployment && &row != &best;
    const bool alike = row.best_split == best.best_split &&
                       (row.best_split || row.prefill_replicas == best.prefill_replicas);
    if (!same || !alike || !row.problem.empty() || !row.workload->policy().is_full()) continue;
    return fmt::format(", {:.2f} times what it serves under full", best.rate / row.rate);
  }
  return "";
}

// The best row of the same devices and policy that has servers for prompts alone where the row has none, or none where
// it has some; nothing: none was simulated.
const SimulatedRow* other_way(const SimulateRequest& r, const SimulatedRow& best,
                              const std::vector<SimulatedRow>& rows) {
  const SimulatedRow* other = nullptr;
  for (const SimulatedRow& row : rows) {
    if (row.device != best.device || row.deployment != best.deployment || row.workload != best.workload) continue;
    if (row.disaggregated() == best.disaggregated()) continue;
    if (other == nullptr || worse(r, *other, row)) other = &row;
  }
  return other;
}

// "; without servers for prompts alone, 4 of h100-sxm: 9.28 requests/s, 0.81 times as many": whether they pay.
std::string whether_disaggregation_pays(const SimulateRequest& r, const SimulatedRow& best,
                                        const std::vector<SimulatedRow>& rows) {
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
  if (r.replicas == 0) {
    return who + (a_device.empty() ? ", as many devices"
                                   : fmt::format(", {} devices in place of {}", other->devices(), best.devices()));
  }
  return fmt::format("{}: {:.1f} %", who, 100 * other->attained.value);
}

// The best row that differs in drafts: without them where this one has them, and with them where it has none. Each has
// the number of servers that was found for it.
const SimulatedRow* drafts_aside(const SimulateRequest& r, const SimulatedRow& best,
                                 const std::vector<SimulatedRow>& rows) {
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
std::string whether_drafts_pay(const SimulateRequest& r, const SimulatedRow& best,
                               const std::vector<SimulatedRow>& rows) {
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

// "3 to 5 of them".
std::string replicas_text(const Estimate& e) {
  if (!std::isfinite(e.high80)) return fmt::format("from {:.0f} of them to more than any number", e.low80);
  if (e.low80 == e.high80) return fmt::format("{:.0f} of them", e.low80);
  return fmt::format("{:.0f} to {:.0f} of them", e.low80, e.high80);
}

// "24.2 to 65.2".
std::string rates_text(const Estimate& e) {
  return std::isfinite(e.high80) ? interval_text(e, 1) : number_text(e.low80) + " or more";
}

}  // namespace

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

std::string rate_with_interval(const Estimate& e) {
  return std::isfinite(e.high80) ? with_interval(e, 1) : fmt::format("{} ({})", number_text(e.value), rates_text(e));
}

std::string answer_text(const SimulateRequest& r, const std::vector<SimulatedRow>& rows) {
  const SimulatedRow* best = &best_of(r, rows);
  if (!best->problem.empty()) return fmt::format("{}: {}.", devices_text(*best), best->problem);
  std::string who = fmt::format("{} under {}", devices_text(*best), policy_text(r, *best));
  const std::string share = fmt::format("{:g} % of the requests", 100 * r.attainment);
  const std::string pays = whether_disaggregation_pays(r, *best, rows) + whether_drafts_pay(r, *best, rows);
  if (r.highest_rate) {
    return fmt::format("{} serves up to {} requests/s (80 %: {}) with {} in time ({}){}{}.", who,
                       number_text(best->rate), rates_text(*best->rate_interval), share, goals_text(r),
                       beside_full(*best, rows), pays);
  }
  if (r.replicas == 0) {
    return fmt::format("{} {} {} in time ({}), 80 %: {}{}.", who, best->replicas > 1 ? "have" : "has", share,
                       goals_text(r), replicas_text(*best->replicas_interval), pays);
  }
  std::string text = fmt::format(
      "{} answers {} requests/s, {} tokens/s; half of the first tokens come within {} ms, 99 % within {} ms", who,
      number_text(best->requests_per_s.value), number_text(best->tokens_per_s.value),
      number_text(best->latency.first_token.p50.value * 1e3), number_text(best->latency.first_token.p99.value * 1e3));
  if (r.has_goals()) {
    text += fmt::format("; {:.1f} % of the requests are in time ({})", 100 * best->attained.value, goals_text(r));
  }
  return text + pays + ".";
}

}  // namespace kvroof
