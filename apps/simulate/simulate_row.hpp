// One deployment under one policy that serves the requests, priced with intervals.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/conformal.hpp"
#include "apps/prediction/device_prices.hpp"
#include "apps/prediction/latency_estimates.hpp"
#include "apps/simulate/simulate_request.hpp"

namespace kvroof {

struct SimulatedRow {
  const Device* device = nullptr;
  const Workload* workload = nullptr;
  const Deployment* deployment = nullptr;
  std::string problem;          // why nothing was simulated; empty: it was
  std::uint32_t replicas = 1;   // all servers
  std::uint32_t prefill_replicas = 0;   // of them, those of prompts alone
  std::uint32_t prefill_parallel = 1;   // devices of each of those
  const Device* prefill_device = nullptr;
  bool best_split = false;      // their number was looked for
  double rate = 0;              // requests a second that arrive; 0: of clients
  std::uint32_t clients = 0;    // of a closed loop
  // What was looked for with --rate max, --clients max and --replicas auto; an end of replicas is infinite where no
  // number meets the goals with times so long, one of rates where any rate does with times so short.
  std::optional<Estimate> rate_interval, clients_interval, replicas_interval;
  std::size_t refused = 0;      // requests that do not fit on a server by themselves, and miss the goals
  std::vector<std::size_t> numbers;  // of those that are served, among all; empty: all are, or turns as they came
  bool met = true;              // the goals, by the share of requests that was asked for
  ServingOutcome outcome;       // at the predicted times
  RequestEstimates latency;
  Estimate requests_per_s, tokens_per_s;
  Estimate attained;            // the share of requests that met the goals; without goals of those that were answered
  double cache_capacity = 0;    // bytes of a device
  double prefill_capacity = 0;  // likewise of a server of prompts
  bool shares_prefixes = false; // servers that compute prompts have prefix caches
  bool evicts = false;          // the policy, from prompts
  std::string interval_from;
  IntervalFactors step_factors;  // of steps

  // Whether any answer has a second token, so that there is a time between them.
  [[nodiscard]] bool has_gaps() const { return outcome.gaps.count() > 0; }
  [[nodiscard]] bool disaggregated() const { return prefill_replicas > 0 || best_split; }
  [[nodiscard]] std::uint32_t answering() const { return replicas - prefill_replicas; }
  [[nodiscard]] std::uint32_t devices() const {
    return answering() * deployment->devices() + prefill_replicas * prefill_parallel;
  }
  // Of all servers; nothing where a device has no price.
  [[nodiscard]] std::optional<UsdRange> usd_per_hour() const;
  // Tokens a second that they make for as long as requests come: where they keep up, the answers of those. What is
  // counted of a run (tokens_per_s) has its end in it, in which the last answers are waited for.
  [[nodiscard]] double lasting_tokens_per_s() const;
  // Of a million of these.
  [[nodiscard]] std::optional<UsdRange> price() const {
    return price_of_million_tokens(usd_per_hour(), lasting_tokens_per_s());
  }
  [[nodiscard]] bool falls_behind() const { return rate > 0 && kvroof::falls_behind(outcome); }
  // The number of a served request among all.
  [[nodiscard]] std::size_t number_of(std::size_t served) const { return numbers.empty() ? served : numbers[served]; }
};

using SimulatedRows = std::span<const SimulatedRow>;

// Seconds from the arrival of a request to its answer, of a conversation to its last, in the mean.
double visit_seconds(const SimulateRequest& request, const SimulatedRow& row);
// How many requests come at the row's rate until as many end as begin: while a few answers take, for they take longer
// as servers fill, or three conversations, the first of which fills them. 0: of rows without a rate.
double lasting_count(const SimulateRequest& request, const SimulatedRow& row);
// Whether servers were still filling when the last request of a rate that is to last came: what was found is that of a
// burst.
bool is_burst(const SimulateRequest& request, const SimulatedRow& row);
// Where --count says nothing and servers were still filling when the last request came: how many to draw instead; 0:
// they were not.
std::uint32_t more_requests(const SimulateRequest& request, SimulatedRows rows);

// A row for each device, deployment, policy and number of servers of prompts, in this order.
std::vector<SimulatedRow> simulate_rows(const SimulateRequest& request, const std::vector<Workload>& workloads,
                                        const Arguments& arguments);

}  // namespace kvroof
