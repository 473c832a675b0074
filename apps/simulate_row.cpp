#include "apps/simulate_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "apps/intervals.hpp"
#include "apps/simulate_prefixes.hpp"
#include "sim/core/thread_pool.hpp"

namespace kvroof {
namespace {

// Neighbouring lengths of prompts share a profile within so much, which random lengths even out.
constexpr double kProfileRatio = 1.05;
constexpr std::size_t kMostProfiles = 200;
constexpr double kMostProfileWork = 4e7;  // layers × steps × profiles, about a second of each core
constexpr std::uint32_t kMostReplicas = 4096;
constexpr double kRateStep = 1.01;  // the highest rate is found within so much
constexpr double kLowestRate = 1e-3, kHighestRate = kLowestRate * (1 << 30);  // powers of 4 apart

constexpr std::array kEnds = {&Estimate::value, &Estimate::low80, &Estimate::high80, &Estimate::low95,
                              &Estimate::high95};

std::vector<LengthProfile> profiles_of(const SimulateRequest& request, const Workload& workload, ThreadPool& pool) {
  std::vector<std::uint32_t> prompts;
  for (const Request& r : request.requests) prompts.push_back(r.prompt);
  const WorkloadRequest& w = request.workload;
  const double work = static_cast<double>(w.model.layers) * w.output;
  const auto most = static_cast<std::size_t>(std::clamp(kMostProfileWork / work, 8.0, double{kMostProfiles}));
  const std::vector<std::uint32_t> lengths = profiled_lengths(std::move(prompts), kProfileRatio, most);
  std::vector<LengthProfile> profiles(lengths.size());
  pool.parallel_for(lengths.size(), [&](std::size_t i) {
    profiles[i] = length_profile(workload.with_lengths(lengths[i], w.output),
                                 workload.step_counts(lengths[i], w.output));
  });
  return profiles;
}

// Simulates one row at any rate and number of replicas.
class RowSimulator {
 public:
  RowSimulator(const SimulateRequest& request, const CostModel& cost, const std::vector<LengthProfile>& profiles,
               const Device& device, const PolicySpec& policy)
      : request_(request), cost_(cost), profiles_(profiles), limits_(request.limits_on(device)),
        prefixes_(prefix_setup(request, cost, device, policy, profiles.back().mean)) {}

  [[nodiscard]] ServingOutcome outcome(double rate, std::uint32_t replicas, const TimeReading& reading = {}) const {
    std::vector<Request> requests = request_.requests;
    if (request_.highest_rate) {
      for (Request& r : requests) r.arrival /= rate;
    }
    const DeploymentCosts costs(cost_, profiles_, reading);
    const bool routes = request_.prefix_cache && request_.prefix_cache->routes;
    return simulate_serving(costs, {limits_, replicas, request_.clients, prefixes_, routes}, requests);
  }
  [[nodiscard]] double attained(const ServingOutcome& outcome) const {
    const double any = std::numeric_limits<double>::infinity();
    return attainment(outcome, request_.ttft_ms ? *request_.ttft_ms * 1e-3 : any,
                      request_.tpot_ms ? *request_.tpot_ms * 1e-3 : any);
  }
  [[nodiscard]] bool meets(const ServingOutcome& outcome) const { return attained(outcome) >= request_.attainment; }
  [[nodiscard]] bool meets(double rate, std::uint32_t replicas, const TimeReading& reading) const {
    return meets(outcome(rate, replicas, reading));
  }
  [[nodiscard]] const std::optional<PrefixCacheSetup>& prefixes() const { return prefixes_; }
  [[nodiscard]] double cache_capacity() const {
    return DeploymentCosts(cost_, profiles_, {}).cache_capacity();
  }

 private:
  const SimulateRequest& request_;
  const CostModel& cost_;
  const std::vector<LengthProfile>& profiles_;
  SchedulerLimits limits_;
  std::optional<PrefixCacheSetup> prefixes_;
};

// More replicas than requests help nobody.
std::uint32_t most_replicas(std::size_t requests) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(requests, kMostReplicas));
}

// The fewest replicas that meet the goals, or 0: no number of them does.
std::uint32_t fewest_replicas(const RowSimulator& simulator, std::size_t requests, const TimeReading& reading = {}) {
  const std::uint32_t most = most_replicas(requests);
  std::uint32_t high = 1;
  while (high < most && !simulator.meets(0, high, reading)) high = std::min(high * 2, most);
  if (!simulator.meets(0, high, reading)) return 0;
  std::uint32_t low = high / 2;  // does not meet them
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    (simulator.meets(0, middle, reading) ? high : low) = middle;
  }
  return high;
}

// The highest rate that meets the goals; 0: even requests that come one by one do not; infinity: they do at any rate,
// for they are too few to fill the servers. It is looked for near what full servers answer, for that takes few steps to
// simulate: servers that idle make many.
double highest_rate(const RowSimulator& simulator, std::uint32_t replicas, const TimeReading& reading = {}) {
  const auto meets = [&](double rate) { return simulator.meets(rate, replicas, reading); };
  const ServingOutcome full = simulator.outcome(kHighestRate, replicas, reading);
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

using Ends = std::array<double, kEnds.size()>;

// A figure at the five ends of all times. A schedule may come out a little better with slower steps; its interval
// still holds the value.
Estimate estimate_of(const Ends& at) {
  Estimate e{at[0], std::min(at[1], at[0]), std::max(at[2], at[0])};
  e.low95 = std::min(at[3], e.low80);
  e.high95 = std::max(at[4], e.high80);
  return e;
}

// Likewise of one that falls where times grow.
Estimate falling_estimate_of(const Ends& at) { return estimate_of({at[0], at[2], at[1], at[4], at[3]}); }

using Summaries = std::array<ServingSummary, kEnds.size()>;

// At least as wide as like measured rows err, where that is known: queues of another hour than the simulated one.
Estimate at_least(Estimate e, const IntervalFactors& errors) {
  const auto widen = [&](double error, double& low, double& high) {
    if (!std::isfinite(error)) return;
    low = std::min(low, e.value * std::exp(-errors.wider * error));
    high = std::max(high, e.value * std::exp(errors.wider * error));
  };
  widen(errors.error80, e.low80, e.high80);
  widen(errors.error95, e.low95, e.high95);
  return e;
}

LatencyEstimates latency_of(const Summaries& summaries, LatencySummary ServingSummary::* which,
                            const IntervalFactors& errors) {
  const auto of = [&](double LatencySummary::* figure) {
    Ends at{};
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = summaries[i].*which.*figure;
    return at_least(estimate_of(at), errors);
  };
  return {of(&LatencySummary::mean), of(&LatencySummary::p50), of(&LatencySummary::p90), of(&LatencySummary::p95),
          of(&LatencySummary::p99)};
}

// The mean work that is in a step.
Reach reach_of(const SimulateRequest& request, const SimulatedRow& row) {
  double tokens = 0;
  for (const Request& r : request.requests) tokens += static_cast<double>(r.prompt) + r.output;
  const Replica::Totals& totals = row.outcome.totals;
  return {totals.running_seconds / totals.busy_seconds, tokens / static_cast<double>(request.requests.size()),
          static_cast<double>(row.deployment->tensor_parallel)};
}

// Prompts of the lengths that are computed, on average.
std::string prompt_metric_of(const ServingOutcome& outcome) {
  double tokens = 0;
  for (const ServedRequest& r : outcome.requests) tokens += r.request.prompt - r.cached;
  return prompt_metric(tokens / static_cast<double>(outcome.requests.size()));
}

// How times are read for the five ends, as measured rows ask for the work that is in the steps of the row's outcome.
using Readings = std::array<TimeReading, kEnds.size()>;

Readings readings_of(const CostModel& cost, const SimulateRequest& request, SimulatedRow& row) {
  const Reach reach = reach_of(request, row);
  const IntervalFactors steps = interval_group(*row.device, cost, "step").at(reach);
  const IntervalFactors prompts = interval_group(*row.device, cost, prompt_metric_of(row.outcome)).at(reach);
  row.interval_from = steps.text();
  Readings readings;
  for (std::size_t i = 1; i < kEnds.size(); ++i) {
    const auto end = kEnds[i];
    readings[i] = {[=](const Estimate& e) { return with_factors(e, steps).*end; },
                   [=](const Estimate& e) { return with_factors(e, prompts).*end; }};
  }
  return readings;
}

void price(const RowSimulator& simulator, const Readings& readings, const IntervalFactors& first_token_errors,
           SimulatedRow& row) {
  Summaries summaries;
  Ends requests{}, tokens{}, attained{};
  for (std::size_t i = 0; i < kEnds.size(); ++i) {
    const ServingOutcome outcome = i == 0 ? row.outcome : simulator.outcome(row.rate, row.replicas, readings[i]);
    summaries[i] = summarise_serving(outcome);
    requests[i] = summaries[i].requests_per_s;
    tokens[i] = summaries[i].tokens_per_s;
    attained[i] = simulator.attained(outcome);
  }
  row.requests_per_s = falling_estimate_of(requests);
  row.tokens_per_s = falling_estimate_of(tokens);
  row.attained = falling_estimate_of(attained);
  row.first_token = latency_of(summaries, &ServingSummary::first_token, first_token_errors);
  row.token = latency_of(summaries, &ServingSummary::token, {});
  row.gap = latency_of(summaries, &ServingSummary::gap, {});
  row.whole = latency_of(summaries, &ServingSummary::whole, {});
}

// What was looked for, at the five ends of all times.
void price_search(const RowSimulator& simulator, const Readings& readings, const SimulateRequest& request,
                  SimulatedRow& row) {
  Ends at{};
  for (std::size_t i = 0; i < kEnds.size(); ++i) {
    if (request.highest_rate) at[i] = i == 0 ? row.rate : highest_rate(simulator, row.replicas, readings[i]);
    if (request.replicas != 0) continue;
    const std::uint32_t fewest =
        i == 0 ? row.replicas : fewest_replicas(simulator, request.requests.size(), readings[i]);
    at[i] = fewest > 0 ? fewest : std::numeric_limits<double>::infinity();
  }
  if (request.highest_rate) row.rate_interval = falling_estimate_of(at);
  if (request.replicas == 0) row.replicas_interval = estimate_of(at);
}

// Why a search for a rate or for replicas has no answer; empty: it has one.
std::string search_problem(const SimulateRequest& request, const SimulatedRow& row) {
  const std::string few = fmt::format("fewer than {:g} % of the requests meet the goals", 100 * request.attainment);
  if (row.replicas == 0) {
    return fmt::format("{}, even with {} servers", few, most_replicas(request.requests.size()));
  }
  if (!request.highest_rate) return "";
  if (row.rate == 0) return few + ", however slowly they come";
  if (std::isfinite(row.rate)) return "";
  return fmt::format("the goals are met however fast the {} requests come; more of them have a highest rate",
                     request.requests.size());
}

void simulate_row(const SimulateRequest& request, const std::vector<LengthProfile>& profiles, SimulatedRow& row) {
  const CostModel cost(request.workload.model,
                       request.workload.with_cache_of(row.workload->policy(), *row.deployment), *row.device,
                       request.workload.engine_on(*row.device));
  const std::string longest = fmt::format("a request of {} + {} tokens", request.workload.prompt,
                                          request.workload.output);
  if (cost.largest_batch(profiles.back().mean) == 0) {
    row.met = false;
    row.problem = longest + " does not fit";
    return;
  }
  const RowSimulator simulator(request, cost, profiles, *row.device, row.workload->policy());
  row.cache_capacity = simulator.cache_capacity();
  row.prefixes = simulator.prefixes();
  row.evicts = profiles.back().mean.evicts;
  row.replicas = request.replicas;
  if (request.replicas == 0) row.replicas = fewest_replicas(simulator, request.requests.size());
  if (request.highest_rate) row.rate = highest_rate(simulator, row.replicas);
  row.problem = search_problem(request, row);
  if (!row.problem.empty()) {
    row.met = false;
    row.replicas = std::max(row.replicas, 1U);
    return;
  }
  if (request.clients == 0 && !request.highest_rate && request.requests.back().arrival > 0) {
    row.rate = static_cast<double>(request.requests.size() - 1) / request.requests.back().arrival;
  }
  row.outcome = simulator.outcome(row.rate, row.replicas);
  row.met = simulator.meets(row.outcome);
  const Readings readings = readings_of(cost, request, row);
  price(simulator, readings, interval_group(*row.device, cost, "first token").at(reach_of(request, row)), row);
  price_search(simulator, readings, request, row);
}

}  // namespace

bool SimulatedRow::falls_behind() const {
  const double few = 10 + 0.05 * static_cast<double>(outcome.requests.size());
  return rate > 0 && static_cast<double>(outcome.waiting_at_end) > few;
}

std::vector<SimulatedRow> simulate_rows(const SimulateRequest& request, const std::vector<Workload>& workloads,
                                        const Arguments& arguments) {
  ThreadPool pool(arguments.threads);
  std::map<const Workload*, std::vector<LengthProfile>> profiles;  // which depend on the policy alone
  for (const Workload& workload : workloads) profiles[&workload] = profiles_of(request, workload, pool);
  std::vector<SimulatedRow> rows;
  for (const Device& device : request.devices) {
    for (const Deployment& deployment : request.workload.deployments) {
      for (const Workload& workload : workloads) {
        SimulatedRow& row = rows.emplace_back();
        row.device = &device;
        row.deployment = &deployment;
        row.workload = &workload;
      }
    }
  }
  shipped_intervals();  // made once, before threads ask for it
  Progress progress(arguments, "simulating");
  std::mutex one_at_a_time;
  std::size_t done = 0;
  pool.parallel_for(rows.size(), [&](std::size_t i) {
    simulate_row(request, profiles.at(rows[i].workload), rows[i]);
    const std::lock_guard lock(one_at_a_time);
    progress.at(++done, rows.size());
  });
  return rows;
}

}  // namespace kvroof
