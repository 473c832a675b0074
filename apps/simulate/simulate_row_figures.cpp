// What a simulated row costs, and what of it lasts.
#include <cmath>

#include "apps/simulate/simulate_row.hpp"

namespace kvroof {

std::optional<UsdRange> SimulatedRow::usd_per_hour() const {
  const auto answers = price_of_hour(*device, answering() * deployment->devices());
  const auto prompts = price_of_hour(*prefill_device, prefill_replicas * prefill_parallel);
  if (!answers || (prefill_replicas > 0 && !prompts)) return std::nullopt;
  if (prefill_replicas == 0) return answers;
  return UsdRange{answers->low_usd + prompts->low_usd, answers->high_usd + prompts->high_usd};
}

double SimulatedRow::lasting_tokens_per_s() const {
  const auto& all = outcome.requests;
  if (all.empty()) return 0;  // nothing was simulated
  double per_s = rate;
  if (clients > 0) {  // while they go on asking
    const double asked_for = all.back().request.arrival - all[outcome.warm_up].request.arrival;
    const double whole = outcome.seconds - (outcome.rates_warmed_up ? all[outcome.warm_up].request.arrival : 0);
    per_s = asked_for > whole / 2 ? static_cast<double>(all.size() - 1 - outcome.warm_up) / asked_for : 0;
  }
  if (!(per_s > 0) || falls_behind()) return tokens_per_s.value;
  double tokens = 0;
  for (const ServedRequest& r : all) tokens += r.request.output;
  return per_s * tokens / static_cast<double>(all.size());
}

double visit_seconds(const SimulateRequest& request, const SimulatedRow& row) {
  const double turns = request.mean_turns;
  return turns * row.latency.whole.mean.value + (turns - 1) * request.pause;
}

double lasting_count(const SimulateRequest& request, const SimulatedRow& row) {
  const bool has_rate = row.problem.empty() && row.rate > 0 && std::isfinite(row.rate);
  const double visits = request.in_conversations() ? 3 : 4;
  return has_rate ? visits * visit_seconds(request, row) * row.rate : 0;
}

bool is_burst(const SimulateRequest& request, const SimulatedRow& row) {
  const auto count = static_cast<double>(row.outcome.requests.size());
  return request.lasts && row.problem.empty() && count < lasting_count(request, row) && !row.falls_behind();
}

}  // namespace kvroof
