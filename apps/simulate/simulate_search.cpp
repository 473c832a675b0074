#include "apps/simulate/simulate_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvroof {
namespace {

constexpr double kRateStep = 1.01;  // the highest rate is found within so much
constexpr double kLowestRate = 1e-3, kHighestRate = kLowestRate * (1 << 30);  // powers of 4 apart

// The least x from 1 to `most` for which `holds`, which holds from some x on; 0: for none.
template <class Holds>
std::uint32_t least_that(std::uint32_t most, Holds holds) {
  std::uint32_t high = 1;
  bool held = holds(high);
  while (!held && high < most) {
    high = std::min(high * 2, most);
    held = holds(high);
  }
  if (!held) return 0;
  for (std::uint32_t low = high / 2; high - low > 1;) {
    const std::uint32_t middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

ServingOutcome RowSimulator::outcome(double rate, Servers servers, const RowReading& reading) const {
  listener_(rate, servers);
  std::vector<Request> requests = requests_;
  if (request_.highest_rate) {
    for (Request& r : requests) r.arrival /= rate;
  }
  const bool routes = request_.prefix_cache && request_.prefix_cache->routes;
  const DeploymentCosts answers(answers_.cost, profiles_, reading.answers);
  const auto warmed_up = [&](ServingOutcome outcome) {
    outcome.warm_up = std::min<std::size_t>(request_.warm_up, requests.size() / 2);
    return outcome;
  };
  if (servers.prefill == 0) {
    const std::uint32_t groups = answers_.cost.deployment().data_parallel;
    return warmed_up(simulate_serving(
        answers, {answers_.limits, servers.all, request_.clients, answers_.prefixes, routes, groups}, requests));
  }
  const DeploymentCosts prompts(prompts_.cost, profiles_, reading.prompts);
  const DisaggregatedSetup setup{prompts_.limits, answers_.limits, servers.prefill, servers.all - servers.prefill,
                                 link_, request_.clients, prompts_.prefixes, routes};
  return warmed_up(simulate_disaggregated(prompts, answers, setup, requests));
}

double RowSimulator::attained(const ServingOutcome& outcome) const {
  const double any = std::numeric_limits<double>::infinity();
  const double served = attainment(outcome, request_.ttft_ms ? *request_.ttft_ms * 1e-3 : any,
                                   request_.tpot_ms ? *request_.tpot_ms * 1e-3 : any);
  return served * served_share();
}

std::uint32_t most_replicas(std::size_t requests) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(requests, kMostReplicas));
}

Servers fewest_servers(const RowSimulator& simulator, std::uint32_t prefill, const RowReading& reading) {
  const std::uint32_t most = most_replicas(simulator.requests().size());
  const std::uint32_t fewest = least_that(most, [&](std::uint32_t others) {
    return simulator.meets(0, {prefill + others, prefill}, reading);
  });
  return fewest > 0 ? Servers{prefill + fewest, prefill} : Servers{0, prefill};
}

// From as many of each kind as suffice: with each number of servers of prompts it is asked whether one device less in
// all does, and only then how few do.
Servers fewest_split(const RowSimulator& simulator, const RowReading& reading) {
  const std::uint32_t most = most_replicas(simulator.requests().size());
  const auto meets = [&](std::uint32_t prefill, std::uint32_t others) {
    return simulator.meets(0, {prefill + others, prefill}, reading);
  };
  const std::uint32_t each = least_that(most, [&](std::uint32_t n) { return meets(n, n); });
  if (each == 0) return {0, 0};
  Servers best{2 * each, each};
  std::uint64_t devices = std::uint64_t{each} * (simulator.devices() + simulator.prefill_devices());
  for (std::uint32_t prefill = 1; prefill <= most; ++prefill) {
    const std::uint64_t taken = std::uint64_t{prefill} * simulator.prefill_devices() + 1;
    if (taken + simulator.devices() > devices) break;
    const std::uint64_t room = (devices - taken) / simulator.devices();
    const auto left = static_cast<std::uint32_t>(std::min<std::uint64_t>(room, most));
    if (!meets(prefill, left)) continue;
    const std::uint32_t others = least_that(left, [&](std::uint32_t n) { return n == left || meets(prefill, n); });
    best = {prefill + others, prefill};
    devices = std::uint64_t{others} * simulator.devices() + taken - 1;
  }
  return best;
}

// It is looked for near what full servers answer, for that takes few steps to simulate: servers that idle make many.
double highest_rate(const RowSimulator& simulator, Servers servers, const RowReading& reading) {
  const auto meets = [&](double rate) { return simulator.meets(rate, servers, reading); };
  const ServingOutcome full = simulator.outcome(kHighestRate, servers, reading);
  if (simulator.meets(full)) return std::numeric_limits<double>::infinity();
  double low = kLowestRate;
  const double answered = summarise_serving(full).requests_per_s;
  while (4 * low <= std::min(answered, kHighestRate / 4)) low *= 4;
  double high = kHighestRate;
  for (; !meets(low); low /= 4) {
    if (low == kLowestRate) return 0;
    high = low;
  }
  while (4 * low < high && meets(4 * low)) low *= 4;
  for (high = 4 * low; high / low > kRateStep;) {
    const double middle = std::sqrt(low * high);
    (meets(middle) ? low : high) = middle;
  }
  return low;
}

BestSplit best_split(const RowSimulator& simulator, std::uint32_t all) {
  BestSplit best{{all, 1}, 0};
  // Whether the goals are met, and by which share; no other number serves more than all that fit, or than any rate.
  std::pair<bool, double> attained{false, -1};
  const std::pair<bool, double> most{true, simulator.served_share()};
  for (std::uint32_t prefill = 1; prefill < all && std::isfinite(best.rate) && attained < most; ++prefill) {
    const Servers servers{all, prefill};
    if (!simulator.request().highest_rate) {
      const ServingOutcome outcome = simulator.outcome(0, servers);
      const std::pair<bool, double> reached{simulator.meets(outcome), simulator.attained(outcome)};
      if (reached > attained) best.servers = servers;
      attained = std::max(attained, reached);
    } else if (best.rate == 0 || simulator.meets(best.rate * kRateStep, servers, {})) {
      const double rate = highest_rate(simulator, servers);
      if (rate > best.rate) best = {servers, rate};
    }
  }
  return best;
}

}  // namespace kvroof
