#include "apps/simulate/simulate_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/serving/conversations.hpp"

namespace kvroof {
namespace {

// Rates that are looked for: each so many times the one before that the highest is found within 1 %.
constexpr int kRatesOfFour = 256;
constexpr std::uint32_t kRates = 15 * kRatesOfFour;
double rate_at(std::uint32_t i) { return 1e-3 * std::pow(4, static_cast<double>(i) / kRatesOfFour); }
std::uint32_t rate_about(double rate) {
  const double i = std::round(kRatesOfFour * std::log(rate / rate_at(0)) / std::log(4));
  return static_cast<std::uint32_t>(std::clamp(i, 0.0, double{kRates}));
}

// Where a number is looked for: from about where it should be, in strides that double until it is passed.
struct Guess {
  std::uint32_t at = 1, stride = 1;
};

// The least x from 1 to `most` for which `holds`, which holds from some x on; 0: for none.
template <class Holds>
std::uint32_t least_that(std::uint32_t most, Guess guess, Holds holds) {
  std::uint32_t low = 0, high = std::clamp(guess.at, 1U, most);  // for none up to low, for high
  if (holds(high)) {
    for (std::uint32_t stride = guess.stride; high > 1 && low == 0; stride *= 2) {
      const std::uint32_t x = high > stride ? high - stride : 1;
      (holds(x) ? high : low) = x;
    }
  } else {
    std::uint32_t stride = guess.stride;
    do {
      low = high;
      if (low == most) return 0;
      high = std::min(low + stride, most);
      stride *= 2;
    } while (!holds(high));
  }
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

std::size_t RowSimulator::sent_at(double load) const {
  return std::min(request_.sent_by(clients_at(load)), requests_.size());
}

std::size_t RowSimulator::warm_up_at(double load) const {
  return std::min(request_.warm_up_of(clients_at(load)), sent_at(load) / 2);
}

ServingOutcome RowSimulator::simulated(double load, Servers servers, const RowReading& reading,
                                       const std::optional<LateLimit>& late) const {
  listener_(load, servers);
  const std::uint32_t clients = clients_at(load);
  std::vector<Request> requests = clients > 0 ? turns_of_clients(requests_, clients, sent_at(load)) : requests_;
  if (request_.highest_rate) {
    for (Request& r : requests) r.arrival /= load;
  }
  const bool routes = request_.prefix_cache && request_.prefix_cache->routes;
  const DeploymentCosts answers(answers_.cost, profiles_, reading.answers);
  const auto warmed_up = [&](ServingOutcome outcome) {
    outcome.warm_up = warm_up_at(load);
    outcome.rates_warmed_up = request_.in_conversations();
    return outcome;
  };
  if (servers.prefill == 0) {
    const std::uint32_t groups = answers_.cost.deployment().data_parallel;
    const ServingSetup setup{answers_.limits, servers.all, clients,         answers_.prefixes, routes,
                             groups,          late,        request_.pauses, sent_at(load)};
    return warmed_up(simulate_serving(answers, setup, requests));
  }
  const DeploymentCosts prompts(prompts_.cost, profiles_, reading.prompts);
  const DisaggregatedSetup setup{prompts_.limits, answers_.limits, servers.prefill, servers.all - servers.prefill,
                                 link_, clients, prompts_.prefixes, routes, late, request_.pauses, sent_at(load)};
  return warmed_up(simulate_disaggregated(prompts, answers, setup, requests));
}

bool RowSimulator::meets(double load, Servers servers, const RowReading& reading) const {
  if (!request_.has_goals()) return true;
  LateLimit late = goals();
  late.warm_up = warm_up_at(load);
  const auto counted = static_cast<double>(sent_at(load) - late.warm_up);
  // One more than may be late, so that it does not matter how the share is rounded.
  const double most = counted * (1 - request_.attainment / served_share()) + 1;
  late.most_late = static_cast<std::size_t>(std::max(most, 0.0));
  const ServingOutcome outcome = simulated(load, servers, reading, late);
  return !outcome.gave_up && meets(outcome);
}

LateLimit RowSimulator::goals() const {
  const auto seconds = [](const std::optional<double>& ms) {
    return ms ? *ms * 1e-3 : std::numeric_limits<double>::infinity();
  };
  return {seconds(request_.ttft_ms), seconds(request_.tpot_ms)};
}

double RowSimulator::attained(const ServingOutcome& outcome) const {
  return attainment(outcome, goals().first_token, goals().token) * served_share();
}

std::uint32_t most_replicas(std::size_t requests) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(requests, kMostReplicas));
}

Servers fewest_servers(const RowSimulator& simulator, std::uint32_t prefill, const RowReading& reading,
                       std::uint32_t about) {
  const std::uint32_t most = most_replicas(simulator.requests().size());
  const Guess guess{about > prefill ? about - prefill : 1};
  const std::uint32_t fewest = least_that(most, guess, [&](std::uint32_t others) {
    return simulator.meets(0, {prefill + others, prefill}, reading);
  });
  return fewest > 0 ? Servers{prefill + fewest, prefill} : Servers{0, prefill};
}

// From as many of each kind as suffice: with each number of servers of prompts it is asked whether one device less in
// all does, and only then how few do.
Servers fewest_split(const RowSimulator& simulator, const RowReading& reading, std::uint32_t about) {
  const std::uint32_t most = most_replicas(simulator.requests().size());
  const auto meets = [&](std::uint32_t prefill, std::uint32_t others) {
    return simulator.meets(0, {prefill + others, prefill}, reading);
  };
  const std::uint32_t each = least_that(most, {std::max(about / 2, 1U)}, [&](std::uint32_t n) { return meets(n, n); });
  if (each == 0) return {0, 0};
  Servers best{2 * each, each};
  std::uint64_t devices = std::uint64_t{each} * (simulator.devices() + simulator.prefill_devices());
  for (std::uint32_t prefill = 1; prefill <= most; ++prefill) {
    const std::uint64_t taken = std::uint64_t{prefill} * simulator.prefill_devices() + 1;
    if (taken + simulator.devices() > devices) break;
    const std::uint64_t room = (devices - taken) / simulator.devices();
    const auto left = static_cast<std::uint32_t>(std::min<std::uint64_t>(room, most));
    if (!meets(prefill, left)) continue;
    const std::uint32_t others = least_that(left, {}, [&](std::uint32_t n) { return n == left || meets(prefill, n); });
    best = {prefill + others, prefill};
    devices = std::uint64_t{others} * simulator.devices() + taken - 1;
  }
  return best;
}

// Without a guess it is looked for near what full servers answer, for that takes few steps to simulate: servers that
// idle make many.
double highest_rate(const RowSimulator& simulator, Servers servers, const RowReading& reading, double about) {
  constexpr std::uint32_t kStride = 16;  // 9 %
  if (about <= 0) {
    const ServingOutcome full = simulator.outcome(rate_at(kRates), servers, reading);
    if (simulator.meets(full)) return std::numeric_limits<double>::infinity();
    about = summarise_serving(full).requests_per_s;
  }
  // Rate i has the number i + 1.
  const std::uint32_t missed = least_that(kRates + 1, {rate_about(about) + 1, kStride}, [&](std::uint32_t x) {
    return !simulator.meets(rate_at(x - 1), servers, reading);
  });
  if (missed == 0) return std::numeric_limits<double>::infinity();
  return missed == 1 ? 0 : rate_at(missed - 2);
}

double most_clients(const RowSimulator& simulator, Servers servers, const RowReading& reading, std::uint32_t about) {
  const Guess guess{std::max(about, 7U) + 1, std::max(about / 16, 1U)};
  const std::uint32_t missed = least_that(simulator.clients_looked_for(), guess, [&](std::uint32_t clients) {
    return !simulator.meets(clients, servers, reading);
  });
  return missed == 0 ? std::numeric_limits<double>::infinity() : missed - 1;
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
    } else if (best.rate == 0 || simulator.meets(rate_at(rate_about(best.rate) + 1), servers, {})) {
      const double rate = highest_rate(simulator, servers);
      if (rate > best.rate) best = {servers, rate};
    }
  }
  return best;
}

}  // namespace kvroof
