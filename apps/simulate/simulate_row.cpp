#include "apps/simulate/simulate_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "apps/cli/progress.hpp"
#include "apps/prediction/cached_prompt.hpp"
#include "apps/prediction/intervals.hpp"
#include "apps/simulate/simulate_fit.hpp"
#include "apps/simulate/simulate_prefixes.hpp"
#include "apps/simulate/simulate_search.hpp"
#include "sim/core/thread_pool.hpp"

namespace kvroof {
namespace {

// Neighbouring lengths of prompts share a profile within so much, which random lengths even out.
constexpr double kProfileRatio = 1.05;
constexpr std::size_t kMostProfiles = 200;
constexpr double kMostProfileWork = 4e7;  // layers × steps × profiles, about a second of each core

std::vector<LengthProfile> profiles_of(const SimulateRequest& request, const Workload& workload, ThreadPool& pool) {
  std::vector<std::uint32_t> prompts;
  for (const Request& r : request.requests) prompts.push_back(r.prompt);
  const WorkloadRequest& w = request.workload;
  const double work = static_cast<double>(w.model.layers) * w.output;
  const auto most = static_cast<std::size_t>(std::clamp(kMostProfileWork / work, 8.0, double{kMostProfiles}));
  const std::vector<std::uint32_t> lengths = profiled_lengths(std::move(prompts), kProfileRatio, most);
  std::vector<LengthProfile> profiles(lengths.size());
  pool.parallel_for(lengths.size(), [&](std::size_t i) {
    profiles[i] = profile_of_length(request, workload, lengths[i]);
  });
  return profiles;
}

// The mean work that is in a step.
Reach reach_of(const std::vector<Request>& requests, const Replica::Totals& totals, std::uint32_t devices) {
  double tokens = 0;
  for (const Request& r : requests) tokens += static_cast<double>(r.prompt) + r.output;
  return {totals.running_seconds / totals.busy_seconds, tokens / static_cast<double>(requests.size()),
          static_cast<double>(devices)};
}

double mean_output(const std::vector<Request>& requests) {
  double tokens = 0;
  for (const Request& r : requests) tokens += r.output;
  return tokens / static_cast<double>(requests.size());
}

// Prompts of the lengths that are computed, on average.
std::string prompt_metric_of(const ServingOutcome& outcome) {
  double tokens = 0;
  for (const ServedRequest& r : outcome.requests) tokens += r.request.prompt - r.cached;
  return prompt_metric(tokens / static_cast<double>(outcome.requests.size()));
}

// A row, the costs of its servers, and what is simulated with them.
class RowPricing {
 public:
  RowPricing(const SimulateRequest& request, const std::vector<LengthProfile>& profiles, SimulatedRow& row,
             TrialListener listener)
      : request_(request),
        row_(row),
        cost_(cost_on(*row.device, row.deployment->tensor_parallel)),
        prefill_cost_(cost_on(*row.prefill_device, row.prefill_parallel)),
        all_profiles_(profiles),
        fitting_(fitting_requests(request, *row.workload, profiles, servers_of_row())),
        profiles_(fitting_.profiles),
        requests_(fitting_.requests),
        prefixes_(row.disaggregated() ? prefixes_on(prefill_cost_, *row.prefill_device)
                                      : prefixes_on(cost_, *row.device)),
        simulator_(request, requests_, profiles_, {cost_, limits_on(*row.device, cost_), prefixes_},
                   {prefill_cost_, limits_on(*row.prefill_device, prefill_cost_), prefixes_},
                   request.link_on(*row.device), std::move(listener)) {
    const bool finds = finds_prefixes(row.workload->policy(), profiles.back().mean);
    row_.shares_prefixes = prefixes_.has_value() || (!request.prefix_cache && finds);
    if (!row_.shares_prefixes) {
      for (Request& r : fitting_.requests) r.cached = 0;  // whatever share of each was to be there
    }
    row_.evicts = profiles.back().mean.evicts;
    row_.refused = request.requests.size() - requests_.size();
    if (!request.in_conversations()) row_.numbers = fitting_.numbers;
  }

  void price() {
    row_.problem = requests_.empty() ? memory_problem() : few_problem();
    if (row_.problem.empty()) {
      row_.cache_capacity = DeploymentCosts(cost_, profiles_, {}).cache_capacity();
      row_.prefill_capacity = DeploymentCosts(prefill_cost_, profiles_, {}).cache_capacity();
      search();
      row_.problem = search_problem();
    }
    if (!row_.problem.empty()) {
      row_.met = false;
      if (row_.best_split) row_.prefill_replicas = std::max(row_.prefill_replicas, 1U);
      row_.replicas = std::max(row_.replicas, row_.prefill_replicas + 1);
      return;
    }
    if (request_.clients == 0 && !request_.highest_rate && requests_.back().arrival > 0) {
      std::size_t until_last = requests_.size() - 1;  // of what comes by itself
      while (requests_[until_last].follows) --until_last;
      row_.rate = static_cast<double>(until_last) / requests_.back().arrival;
    }
    row_.outcome = simulator_.outcome(load(), servers());
    row_.met = simulator_.meets(row_.outcome);
    set_readings();
    price_outcome();
    price_search();
  }

 private:
  // How times are read for the five ends, as measured rows ask for the work that is in the steps of the row's outcome.
  using Readings = std::array<RowReading, kEstimateEnds.size()>;

  [[nodiscard]] CostModel cost_on(const Device& device, std::uint32_t devices) const {
    Deployment deployment = request_.workload.with_cache_of(row_.workload->policy(), *row_.deployment);
    deployment.tensor_parallel = devices;
    return {request_.workload.model, deployment, device, request_.workload.engine_on(device)};
  }
  [[nodiscard]] SchedulerLimits limits_on(const Device& device, const CostModel& cost) const {
    SchedulerLimits limits = request_.limits_on(device);
    // Where prompts are computed as one, more than caches grow with the batch, and so do activations.
    if (cost.engine().prompts_together && !profiles_.empty()) {
      const std::uint64_t fit = cost.memory().largest_batch(profiles_.back().mean);
      limits.sequences = std::clamp<std::uint64_t>(fit, 1, limits.sequences);
    }
    if (request_.workload.engine_on(device).overlaps_stages) limits.batches = row_.deployment->stages;
    if (const auto& s = row_.deployment->speculation) limits.drafts = {s->tokens, s->acceptance, request_.seed};
    return limits;
  }
  [[nodiscard]] std::optional<PrefixCacheSetup> prefixes_on(const CostModel& cost, const Device& device) const {
    if (profiles_.empty()) return std::nullopt;
    return prefix_setup(request_, cost, device, row_.workload->policy(), profiles_.back().mean);
  }
  [[nodiscard]] Servers servers() const { return {row_.replicas, row_.prefill_replicas}; }
  [[nodiscard]] double load() const { return request_.most_clients ? row_.clients : row_.rate; }
  // Servers of answers, and of prompts where there are some.
  [[nodiscard]] std::vector<const CostModel*> servers_of_row() const {
    if (row_.disaggregated()) return {&cost_, &prefill_cost_};
    return {&cost_};
  }
  [[nodiscard]] std::string memory_problem() const;
  [[nodiscard]] std::string few_problem() const;
  [[nodiscard]] std::string search_problem() const;
  // Looked for from `about` so many on; 0: from the fewest.
  [[nodiscard]] Servers fewest(const RowReading& reading, std::uint32_t about) const {
    return row_.best_split ? fewest_split(simulator_, reading, about)
                           : fewest_servers(simulator_, row_.prefill_replicas, reading, about);
  }
  void search();
  void set_readings();
  void price_outcome();
  void price_search();

  const SimulateRequest& request_;
  SimulatedRow& row_;
  CostModel cost_, prefill_cost_;
  std::span<const LengthProfile> all_profiles_;
  FittingRequests fitting_;
  std::span<const LengthProfile> profiles_;
  const std::vector<Request>& requests_;      // those that fit
  std::optional<PrefixCacheSetup> prefixes_;  // of the servers that compute prompts
  RowSimulator simulator_;
  bool met_by_any_ = false;  // number of clients that is looked for
  Readings readings_;
  LatencyErrors errors_;
};

// Why no request can be served.
std::string RowPricing::memory_problem() const {
  const auto shortest = std::ranges::min_element(request_.requests, {}, [](const Request& r) {
    return std::uint64_t{r.prompt} + r.output;
  });
  const std::string text = fmt::format("a request of {} + {} tokens does not fit", shortest->prompt, shortest->output);
  const CostModel* const answers = &cost_;
  const bool elsewhere = row_.disaggregated() &&
                         !fitting_requests(request_, *row_.workload, all_profiles_, {&answers, 1}).requests.empty();
  return elsewhere ? text + " on a server of prompts" : text;
}

// Why a search would be in vain; empty: it would not.
std::string RowPricing::few_problem() const {
  const bool searches = request_.replicas == 0 || request_.highest_rate || request_.most_clients;
  const auto all = static_cast<double>(request_.requests.size());
  if (!searches || static_cast<double>(requests_.size()) >= request_.attainment * all) return {};
  return fmt::format("{} of {} requests {}", row_.refused, request_.requests.size(),
                     row_.refused == 1 ? "does not fit on a server by itself" : "do not fit on a server by themselves");
}

// Sets what was not given: the servers, the rate.
void RowPricing::search() {
  if (request_.replicas == 0) {
    const Servers found = fewest({}, 0);
    row_.replicas = found.all;
    row_.prefill_replicas = found.prefill;
  } else if (row_.best_split) {
    const BestSplit best = best_split(simulator_, request_.replicas);
    row_.prefill_replicas = best.servers.prefill;
    row_.rate = best.rate;
  }
  if (request_.highest_rate && !row_.best_split) row_.rate = highest_rate(simulator_, servers());
  row_.clients = request_.clients;
  if (!request_.most_clients) return;
  const double most = most_clients(simulator_, servers());
  met_by_any_ = std::isinf(most);
  row_.clients = met_by_any_ ? simulator_.clients_looked_for() : static_cast<std::uint32_t>(most);
}

// Why a search for a rate or for servers has no answer; empty: it has one.
std::string RowPricing::search_problem() const {
  const std::string few = fmt::format("fewer than {:g} % of the requests meet the goals", 100 * request_.attainment);
  if (row_.replicas == 0) {
    const std::uint32_t most = most_replicas(requests_.size());
    return fmt::format("{}, even with {} server{}{}", few, most, most == 1 ? "" : "s",
                       row_.best_split                 ? " of each kind"
                       : row_.prefill_replicas > 0 ? " for answers"
                                                       : "");
  }
  if (met_by_any_) {
    return fmt::format("the goals are met by {} clients, as many as {} requests are enough for", row_.clients,
                       requests_.size());
  }
  if (request_.most_clients && row_.clients == 0) return few + ", even with one client";
  if (!request_.highest_rate) return "";
  if (row_.rate == 0) return few + ", however slowly they come";
  if (std::isfinite(row_.rate)) return "";
  return fmt::format("the goals are met however fast the {} requests come; more of them have a highest rate",
                     requests_.size());
}

void RowPricing::set_readings() {
  const auto set = [&](const Device& device, const CostModel& cost, const Replica::Totals& totals,
                       TimeReading RowReading::* side) {
    const Reach reach = reach_of(requests_, totals, cost.deployment().devices());
    const IntervalFactors steps = interval_group(device, cost, "step").at(reach);
    if (side == &RowReading::answers) row_.step_factors = steps;
    const IntervalFactors prompts = interval_group(device, cost, prompt_metric_of(row_.outcome)).at(reach);
    const ServedErrors served = served_errors(device, cost, reach, request_.cold);
    for (std::size_t i = 1; i < kEstimateEnds.size(); ++i) {
      const auto end = kEstimateEnds[i];
      // What the answers of measured runs are off by is a common factor of their steps: queues grow with it.
      const IntervalFactors& answers = served.answer.mean;
      readings_[i].*side = {[=](const Estimate& e) { return at_least(with_factors(e, steps), answers).*end; },
                            [=](const Estimate& e) { return with_factors(e, prompts).*end; }};
    }
    const Estimate prompt = cost.prefill(profiles_.back().mean, 1);
    errors_.prompt80 = std::log(with_factors(prompt, prompts).high80 / prompt.value);
    errors_.first_token = interval_group(device, cost, "first token").at(reach);
    errors_.served.first_token = served.first_token;
    errors_.served.cold_first_token = served.cold_first_token;
    if (side == &RowReading::prompts) return;
    const auto running = static_cast<std::uint64_t>(std::max(reach.sequences, 1.0));
    const Estimate step = cost.step(profiles_.back().mean, cost.in_a_pass(running));
    errors_.tokens = std::max(mean_output(requests_) - 1, 1.0);
    errors_.step80 = std::log(at_least(with_factors(step, steps), served.answer.mean).high80 / step.value);
    errors_.served.answer = served.answer;
    errors_.served.cold_answer = served.cold_answer;
    row_.interval_from = fmt::format("{}; {}", steps.text(), served.answer.mean.text());
  };
  // Without a second token nothing is done on servers of answers alone.
  if (row_.outcome.totals.busy_seconds > 0) {
    set(*row_.device, cost_, row_.outcome.totals, &RowReading::answers);
  }
  if (row_.prefill_replicas > 0) {
    set(*row_.prefill_device, prefill_cost_, row_.outcome.prompt_totals, &RowReading::prompts);
  }
}

void RowPricing::price_outcome() {
  EndSummaries summaries;
  Ends requests{}, tokens{}, attained{};
  for (std::size_t i = 0; i < kEstimateEnds.size(); ++i) {
    const ServingOutcome outcome = i == 0 ? row_.outcome : simulator_.outcome(load(), servers(), readings_[i]);
    summaries[i] = summarise_serving(outcome);
    requests[i] = summaries[i].requests_per_s;
    tokens[i] = summaries[i].tokens_per_s;
    attained[i] = simulator_.attained(outcome);
  }
  row_.requests_per_s = falling_estimate_of(requests);
  row_.tokens_per_s = falling_estimate_of(tokens);
  row_.attained = falling_estimate_of(attained);
  row_.latency = request_estimates(summaries, errors_);
}

// What was looked for, at the five ends of all times: a rate with the same servers; servers of any kinds.
void RowPricing::price_search() {
  Ends at{};
  for (std::size_t i = 0; i < kEstimateEnds.size(); ++i) {
    const RowReading& reading = readings_[i];
    if (request_.highest_rate) at[i] = i == 0 ? row_.rate : highest_rate(simulator_, servers(), reading, row_.rate);
    if (request_.most_clients) {
      at[i] = i == 0 ? row_.clients : most_clients(simulator_, servers(), reading, row_.clients);
    }
    if (request_.replicas != 0) continue;
    const std::uint32_t all = i == 0 ? row_.replicas : fewest(reading, row_.replicas).all;
    at[i] = all > 0 ? all : std::numeric_limits<double>::infinity();
  }
  if (request_.highest_rate) row_.rate_interval = falling_estimate_of(at);
  if (request_.most_clients) row_.clients_interval = falling_estimate_of(at);
  if (request_.replicas == 0) row_.replicas_interval = estimate_of(at);
}

// "trial 57: 12.3 requests/s on 4 servers": what a search simulates now, of all rows together.
std::string trial_text(const SimulateRequest& request, std::size_t number, double load, const Servers& servers) {
  std::string text = fmt::format("trial {}:", number);
  if (request.highest_rate) text += fmt::format(" {:.3g} requests/s on", load);
  if (request.most_clients) text += fmt::format(" {:.0f} clients on", load);
  return text + fmt::format(" {} server{}", servers.all, servers.all == 1 ? "" : "s");
}

// A row, before it is priced.
SimulatedRow unpriced_row(const SimulateRequest& request, const Device& device, const Deployment& deployment,
                          const Workload& workload, std::optional<std::uint32_t> prefill) {
  SimulatedRow row;
  row.device = &device;
  row.deployment = &deployment;
  row.workload = &workload;
  row.replicas = request.replicas;
  row.prefill_device = &request.prefill_device(device);
  row.prefill_parallel = request.prefill.tensor_parallel.value_or(deployment.tensor_parallel);
  row.best_split = !prefill;
  row.prefill_replicas = prefill.value_or(0);
  return row;
}

}  // namespace

std::uint32_t more_requests(const SimulateRequest& request, SimulatedRows rows) {
  constexpr double kMostDrawn = 16000;
  // More than fill servers: where their memory fills at last, answers take longer still.
  constexpr double kMore = 2;
  if (!request.drawn || request.chosen_count || !request.lasts) return 0;
  const bool searches = request.highest_rate || request.replicas == 0;
  const auto count = static_cast<double>(request.sent);
  double wanted = 0;
  for (const SimulatedRow& row : rows) {
    // Where nothing is looked for, more requests say no more of servers that fall behind.
    if (searches || !row.falls_behind()) wanted = std::max(wanted, kMore * lasting_count(request, row));
    if (request.highest_rate && std::isinf(row.rate)) wanted = std::max(wanted, 4 * count);
  }
  if (wanted <= count || count >= kMostDrawn) return 0;
  wanted = std::max(std::ceil(wanted / 1000) * 1000, 2 * count);  // each time costs as much as all before together
  return static_cast<std::uint32_t>(std::min(wanted, kMostDrawn));
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
        for (const std::uint32_t prefill : request.prefill.replicas) {
          rows.push_back(unpriced_row(request, device, deployment, workload, prefill));
        }
        if (request.prefill.best) rows.push_back(unpriced_row(request, device, deployment, workload, std::nullopt));
      }
    }
  }
  shipped_intervals();  // both made once, before threads ask for them
  served_intervals();
  Progress progress(arguments, "simulating");
  std::mutex one_at_a_time;
  std::size_t done = 0, trials = 0;
  const auto tell = [&](double load, const Servers& servers) {
    const std::lock_guard lock(one_at_a_time);
    progress.under_way(trial_text(request, ++trials, load, servers));
  };
  pool.parallel_for(rows.size(), [&](std::size_t i) {
    RowPricing(request, profiles.at(rows[i].workload), rows[i], tell).price();
    const std::lock_guard lock(one_at_a_time);
    progress.at(++done, rows.size());
  });
  return rows;
}

}  // namespace kvroof
