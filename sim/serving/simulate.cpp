#include "sim/serving/simulate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace kvroof {
namespace {

// The servers, the requests that are still to come, and the clock between them.
class Simulation {
 public:
  Simulation(const ServingCosts& costs, const ServingSetup& setup, const std::vector<Request>& requests,
             ServingOutcome& outcome)
      : setup_(setup), outcome_(outcome) {
    for (const Request& request : requests) outcome.requests.push_back({.request = request});
    for (std::uint32_t i = 0; i < setup.replicas; ++i) {
      replicas_.emplace_back(costs, setup.limits, setup.prefixes, outcome.requests,
                             [this](double gap) { outcome_.gaps.add(gap); });
    }
    event_of_.resize(replicas_.size());
    if (setup.clients == 0) return;
    for (ServedRequest& served : outcome.requests) served.request.arrival = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < std::min<std::size_t>(setup.clients, requests.size()); ++i) call(0);
  }

  void run() {
    while (next_ < called() || !events_.empty()) {
      if (next_ < called() && (events_.empty() || arrival() <= events_.begin()->first)) {
        place();
        continue;
      }
      const auto [now, i] = *events_.begin();
      outcome_.seconds = std::max(outcome_.seconds, now);
      const std::size_t finished = replicas_[i].run_event().size();
      note_event(i);
      for (std::size_t k = 0; k < finished && setup_.clients > 0; ++k) call(now);
    }
    for (const Replica& replica : replicas_) add(replica.totals());
  }

 private:
  [[nodiscard]] std::size_t called() const { return setup_.clients > 0 ? called_ : outcome_.requests.size(); }
  [[nodiscard]] double arrival() const { return outcome_.requests[next_].request.arrival; }

  // A client sends the next request, if there is one.
  void call(double now) {
    if (called_ < outcome_.requests.size()) outcome_.requests[called_++].request.arrival = now;
  }
  // The server that the next request goes to.
  [[nodiscard]] std::size_t chosen() const {
    const auto load = [](const Replica& r) { return r.waiting() + r.running(); };
    const auto less = [&](const Replica& a, const Replica& b) { return load(a) < load(b); };
    const auto [fewest, most] = std::minmax_element(replicas_.begin(), replicas_.end(), less);
    const auto idlest = static_cast<std::size_t>(fewest - replicas_.begin());
    const std::size_t more = load(*most) - load(*fewest);
    if (!setup_.routes_by_prefix || (more > 64 && 2 * load(*most) > 3 * load(*fewest))) return idlest;
    const Request& request = outcome_.requests[next_].request;
    std::size_t best = idlest;
    std::uint32_t tokens = replicas_[idlest].found(request);
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      const std::uint32_t found = replicas_[i].found(request);
      if (found > tokens || (found == tokens && less(replicas_[i], replicas_[best]))) best = i, tokens = found;
    }
    return tokens > 0.3 * request.prompt ? best : idlest;
  }
  void place() {
    const std::size_t i = chosen();
    if (next_ + 1 == outcome_.requests.size()) {
      for (const Replica& replica : replicas_) outcome_.waiting_at_end += replica.waiting();
    }
    outcome_.requests[next_].replica = static_cast<std::uint32_t>(i);
    replicas_[i].arrive(next_++);
    note_event(i);
  }
  // When the replica must be asked next, after something happened to it.
  void note_event(std::size_t i) {
    if (event_of_[i]) events_.erase({*event_of_[i], i});
    event_of_[i] = replicas_[i].next_event();
    if (event_of_[i]) events_.insert({*event_of_[i], i});
  }
  void add(const Replica::Totals& totals) {
    Replica::Totals& all = outcome_.totals;
    all.steps += totals.steps;
    all.busy_seconds += totals.busy_seconds;
    all.running_seconds += totals.running_seconds;
    all.cache_byte_seconds += totals.cache_byte_seconds;
    all.most_running = std::max(all.most_running, totals.most_running);
    all.most_cache_bytes = std::max(all.most_cache_bytes, totals.most_cache_bytes);
    all.idle_byte_seconds += totals.idle_byte_seconds;
    all.host_byte_seconds += totals.host_byte_seconds;
    all.evicted_blocks += totals.evicted_blocks;
    all.host_tokens_read += totals.host_tokens_read;
  }

  const ServingSetup& setup_;
  ServingOutcome& outcome_;
  std::vector<Replica> replicas_;
  std::vector<std::optional<double>> event_of_;  // of each replica
  // The same by time: the earliest of thousands is asked for often.
  std::set<std::pair<double, std::size_t>> events_;
  std::size_t next_ = 0;    // the first request that no replica has
  std::size_t called_ = 0;  // requests that clients have sent
};

double token_seconds(const ServedRequest& r) {
  return r.request.output < 2 ? 0 : (r.finished - r.first_token) / (r.request.output - 1);
}

}  // namespace

ServingOutcome simulate_serving(const ServingCosts& costs, const ServingSetup& setup,
                                const std::vector<Request>& requests) {
  ServingOutcome outcome;
  outcome.requests.reserve(requests.size());
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
  for (const ServedRequest& r : outcome.requests) {
    first.push_back(r.first_token - r.request.arrival);
    whole.push_back(r.finished - r.request.arrival);
    if (r.request.output > 1) token.push_back(token_seconds(r));
    tokens += r.request.output;
  }
  const LatencyHistogram& gaps = outcome.gaps;
  ServingSummary s{summarise_latency(std::move(first)), summarise_latency(std::move(token)), {},
                   summarise_latency(std::move(whole)), 0, 0};
  const double mean = gaps.count() > 0 ? gaps.sum() / static_cast<double>(gaps.count()) : 0;
  s.gap = {mean, gaps.quantile(0.5), gaps.quantile(0.9), gaps.quantile(0.95), gaps.quantile(0.99)};
  if (outcome.seconds > 0) {
    s.requests_per_s = static_cast<double>(outcome.requests.size()) / outcome.seconds;
    s.tokens_per_s = tokens / outcome.seconds;
  }
  return s;
}

double attainment(const ServingOutcome& outcome, double first_token, double token) {
  const auto in_time = std::count_if(outcome.requests.begin(), outcome.requests.end(), [&](const ServedRequest& r) {
    return r.first_token - r.request.arrival <= first_token && token_seconds(r) <= token;
  });
  return static_cast<double>(in_time) / static_cast<double>(outcome.requests.size());
}

}  // namespace kvroof
