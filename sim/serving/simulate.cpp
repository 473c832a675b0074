#include "sim/serving/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "sim/serving/event_queue.hpp"
#include "sim/serving/router.hpp"
#include "sim/serving/server_steps.hpp"

namespace kvroof {
namespace {

double token_seconds(const ServedRequest& r) {
  return r.request.output < 2 ? 0 : (r.finished - r.first_token) / (r.request.output - 1);
}

bool in_time(const ServedRequest& r, double first_token, double token) {
  return r.first_token - r.request.arrival <= first_token && token_seconds(r) <= token;
}

// The servers, the requests that are still to come, and the clock between them.
class Simulation {
 public:
  Simulation(const ServingCosts& costs, const ServingSetup& setup, const std::vector<Request>& requests,
             ServingOutcome& outcome)
      : setup_(setup),
        outcome_(outcome),
        arrivals_(requests, setup.clients, setup.pauses, setup.most_requests, outcome.requests),
        late_(setup.late, outcome.requests) {
    const std::size_t groups = std::size_t{setup.replicas} * setup.groups;
    groups_.reserve(groups);
    for (std::size_t i = 0; i < groups; ++i) {
      groups_.emplace_back(costs, setup.limits, setup.prefixes, outcome.requests,
                           [this](double gap) { outcome_.gaps.add(gap); });
    }
    for (std::size_t i = 0; i < groups; i += setup.groups) {
      servers_.emplace_back(std::span(groups_).subspan(i, setup.groups), setup.limits);
    }
  }

  void run() {
    while (!outcome_.gave_up && (arrivals_.more() || !events_.empty())) {
      if (arrivals_.come_before(events_)) {
        place();
        continue;
      }
      const auto [now, i] = events_.next();
      outcome_.seconds = std::max(outcome_.seconds, now);
      const std::vector<std::size_t> finished = servers_[i].run_event();
      events_.note(i, servers_[i].next_event());
      arrivals_.answered(finished, now);
      outcome_.gave_up = late_.too_many_with(finished);
    }
    for (const ServerSteps& server : servers_) outcome_.totals += server.totals();
    arrivals_.end();
  }

 private:
  void place() {
    if (arrivals_.is_last()) {
      std::size_t waiting = 0;
      for (const Replica& group : groups_) waiting += group.waiting();
      outcome_.waiting_at_end = std::max(outcome_.waiting_at_end, waiting);
    }
    const std::size_t request = arrivals_.take();
    ServedRequest& served = outcome_.requests[request];
    const std::size_t i = chosen_replica(groups_, served.request, setup_.routes_by_prefix);
    const std::size_t server = i / setup_.groups;
    served.replica = static_cast<std::uint32_t>(server);
    served.group = static_cast<std::uint32_t>(i % setup_.groups);
    groups_[i].arrive(request);
    events_.note(server, servers_[server].next_event());
  }

  const ServingSetup& setup_;
  ServingOutcome& outcome_;
  Arrivals arrivals_;
  LateRequests late_;
  std::vector<Replica> groups_;  // those of the first server, then those of the second …
  std::vector<ServerSteps> servers_;
  EventQueue events_;  // of each server
};

std::span<const ServedRequest> warmed_up(const ServingOutcome& outcome) {
  return std::span(outcome.requests).subspan(outcome.warm_up);
}

}  // namespace

bool LateRequests::too_many_with(std::span<const std::size_t> answered) {
  if (!limit_) return false;
  for (const std::size_t i : answered) {
    if (requests_[i].came >= limit_->warm_up && !in_time(requests_[i], limit_->first_token, limit_->token)) ++late_;
  }
  return late_ > limit_->most_late;
}

ServingOutcome simulate_serving(const ServingCosts& costs, const ServingSetup& setup,
                                const std::vector<Request>& requests) {
  ServingOutcome outcome;
  Simulation(costs, setup, requests, outcome).run();
  return outcome;
}

LatencySummary summarise_latency(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  double sum = 0;
  for (const double x : seconds) sum += x;
  const auto count = static_cast<double>(seconds.size());
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(std::max(1.0, std::ceil(share * count))) - 1];
  };
  return {sum / count, at(0.5), at(0.9), at(0.95), at(0.99)};
}

ServingSummary summarise_serving(const ServingOutcome& outcome) {
  std::vector<double> first, token, whole;
  double tokens = 0;
  for (const ServedRequest& r : warmed_up(outcome)) {
    first.push_back(r.first_token - r.request.arrival);
    whole.push_back(r.finished - r.request.arrival);
    if (r.request.output > 1) token.push_back(token_seconds(r));
  }
  const LatencyHistogram& gaps = outcome.gaps;
  ServingSummary s{summarise_latency(std::move(first)), summarise_latency(std::move(token)), {},
                   summarise_latency(std::move(whole)), 0, 0};
  const double mean = gaps.count() > 0 ? gaps.sum() / static_cast<double>(gaps.count()) : 0;
  s.gap = {mean, gaps.quantile(0.5), gaps.quantile(0.9), gaps.quantile(0.95), gaps.quantile(0.99)};
  const std::size_t begin = outcome.rates_warmed_up ? outcome.warm_up : 0;
  const double seconds = outcome.seconds - (begin > 0 ? outcome.requests[begin].request.arrival : 0);
  for (std::size_t i = begin; i < outcome.requests.size(); ++i) tokens += outcome.requests[i].request.output;
  if (seconds > 0) {
    s.requests_per_s = static_cast<double>(outcome.requests.size() - begin) / seconds;
    s.tokens_per_s = tokens / seconds;
  }
  return s;
}

bool falls_behind(const ServingOutcome& outcome) {
  // Of a conversation one turn waits at most.
  const auto begun = std::ranges::count_if(outcome.requests, [](const ServedRequest& r) { return !r.request.follows; });
  return static_cast<double>(outcome.waiting_at_end) > 10 + 0.05 * static_cast<double>(begun);
}

double attainment(const ServingOutcome& outcome, double first_token, double token) {
  const auto requests = warmed_up(outcome);
  const auto met = std::ranges::count_if(requests, [&](const ServedRequest& r) {
    return in_time(r, first_token, token);
  });
  return static_cast<double>(met) / static_cast<double>(requests.size());
}

}  // namespace kvroof
