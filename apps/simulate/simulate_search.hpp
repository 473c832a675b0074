// Simulates a row at any rate and number of servers; looks for the highest rate and the fewest servers that meet goals.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "apps/simulate/simulate_request.hpp"
#include "sim/serving/disaggregated.hpp"

namespace kvroof {

// Servers of a row: all, and those of them that compute prompts alone. 0 in all: no number meets the goals.
struct Servers {
  std::uint32_t all = 1, prefill = 0;
};

// How times are read on servers of answers, or of both, and on those of prompts.
struct RowReading {
  TimeReading answers, prompts;
};

// A kind of server.
struct ServerKind {
  const CostModel& cost;
  SchedulerLimits limits;
  std::optional<PrefixCacheSetup> prefixes;  // where it computes prompts
};

// Is told of each simulation before it begins: its load and its servers.
using TrialListener = std::function<void(double load, const Servers& servers)>;

class RowSimulator {
 public:
  // `requests` are those of `request` that fit; `prompts`: of servers of prompts alone. All outlive the simulator.
  RowSimulator(const SimulateRequest& request, const std::vector<Request>& requests,
               std::span<const LengthProfile> profiles, ServerKind answers, ServerKind prompts, TransferLink link,
               TrialListener listener)
      : request_(request),
        requests_(requests),
        profiles_(profiles),
        answers_(answers),
        prompts_(prompts),
        link_(link),
        listener_(std::move(listener)) {}

  // The load is what is looked for: requests a second (--rate max), or clients (--clients max); else it is that of the
  // requests.
  [[nodiscard]] ServingOutcome outcome(double load, Servers servers, const RowReading& reading = {}) const {
    return simulated(load, servers, reading, {});
  }
  // Of all requests: those that do not fit are not in time.
  [[nodiscard]] double attained(const ServingOutcome& outcome) const;
  // As many clients as are looked for: each asks twice at least, beside what was said of a conversation before.
  [[nodiscard]] std::uint32_t clients_looked_for() const {
    const std::size_t each_twice = std::max<std::size_t>(2 * requests_.size() / (request_.turns + 3), 1);
    return static_cast<std::uint32_t>(std::min<std::size_t>(request_.clients, each_twice));
  }
  // Of all requests, those that fit.
  [[nodiscard]] double served_share() const {
    return static_cast<double>(requests_.size()) / static_cast<double>(request_.requests.size());
  }
  // Of a rate that lasts, servers that fall behind meet no goal for long.
  [[nodiscard]] bool meets(const ServingOutcome& outcome) const {
    if (!request_.has_goals()) return true;
    return attained(outcome) >= request_.attainment && !(request_.lasts && falls_behind(outcome));
  }
  // The same, of an outcome that need not be whole.
  [[nodiscard]] bool meets(double load, Servers servers, const RowReading& reading) const;
  [[nodiscard]] const SimulateRequest& request() const { return request_; }
  [[nodiscard]] const std::vector<Request>& requests() const { return requests_; }
  // Devices of a server of answers, and of one of prompts.
  [[nodiscard]] std::uint32_t devices() const { return answers_.cost.deployment().devices(); }
  [[nodiscard]] std::uint32_t prefill_devices() const { return prompts_.cost.deployment().devices(); }

 private:
  [[nodiscard]] ServingOutcome simulated(double load, Servers servers, const RowReading& reading,
                                         const std::optional<LateLimit>& late) const;
  [[nodiscard]] LateLimit goals() const;
  [[nodiscard]] std::uint32_t clients_at(double load) const {
    return request_.most_clients ? static_cast<std::uint32_t>(load) : request_.clients;
  }
  // Of those that fit, requests that come at that load, and how many of them are no part of times.
  [[nodiscard]] std::size_t sent_at(double load) const;
  [[nodiscard]] std::size_t warm_up_at(double load) const;

  const SimulateRequest& request_;
  const std::vector<Request>& requests_;
  std::span<const LengthProfile> profiles_;
  ServerKind answers_, prompts_;
  TransferLink link_;
  TrialListener listener_;
};

// More servers of a kind than requests help nobody.
std::uint32_t most_replicas(std::size_t requests);

// The fewest servers that meet the goals, of which so many are of prompts alone. They are looked for from `about` so
// many on; 0: from the fewest.
Servers fewest_servers(const RowSimulator& simulator, std::uint32_t prefill, const RowReading& reading = {},
                       std::uint32_t about = 0);
// The servers of both kinds that meet the goals with the fewest devices.
Servers fewest_split(const RowSimulator& simulator, const RowReading& reading = {}, std::uint32_t about = 0);

// The highest rate that meets the goals; 0: even requests that come one by one do not; infinity: they do at any rate,
// for they are too few to fill the servers. It is looked for from about `about` on; 0: from what servers can answer.
double highest_rate(const RowSimulator& simulator, Servers servers, const RowReading& reading = {}, double about = 0);
// Likewise the most clients; 0: one already misses the goals; infinity: as many as are looked for meet them.
double most_clients(const RowSimulator& simulator, Servers servers, const RowReading& reading = {},
                    std::uint32_t about = 0);
// Of so many servers, those of prompts alone with which the highest rate is highest, and that rate; or, at the rate of
// the requests, with which most of them meet the goals.
struct BestSplit {
  Servers servers;
  double rate = 0;
};
BestSplit best_split(const RowSimulator& simulator, std::uint32_t all);

}  // namespace kvroof
