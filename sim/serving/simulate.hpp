// Requests on one or several alike servers, from the first arrival to the last token: an event-driven simulation.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "sim/serving/latency_histogram.hpp"
#include "sim/serving/replica.hpp"

namespace kvroof {

// Goals that so many requests may miss: a simulation of which only that is asked ends as soon as more have.
struct LateLimit {
  double first_token = 0, token = 0;  // seconds until it, and for a mean token after it; infinity: any
  std::size_t warm_up = 0;            // the first requests, which may miss them
  std::size_t most_late = 0;
};

struct ServingSetup {
  SchedulerLimits limits;
  std::uint32_t replicas = 1;  // servers; a request goes to the one that has fewest, the first of those
  // Clients that each send their next request when the one before is answered (a closed loop): arrivals of requests
  // do not count then. 0: requests come when they come.
  std::uint32_t clients = 0;
  std::optional<PrefixCacheSetup> prefixes = {};  // of each server; without: prompts share nothing
  bool routes_by_prefix = false;                  // chosen_replica()
  // Of devices of each server, which attend to sequences of their own and step together: each has a queue, a memory and
  // a prefix cache of its own, and these limits. A request goes to one of all servers' groups as to a server.
  std::uint32_t groups = 1;
  std::optional<LateLimit> late = {};
  // Seconds that clients wait before they send a request, the first as well, and conversations before a turn, in the
  // order in which they begin to wait and over again; empty: they do not wait. They outlive the simulation.
  std::span<const double> pauses = {};
  std::size_t most_requests = std::numeric_limits<std::size_t>::max();  // after so many no other comes
};

struct ServingOutcome {
  std::vector<ServedRequest> requests;  // in the order in which they came: without turns that of the list
  std::size_t warm_up = 0;              // of them, the first that no percentile or share is of
  bool rates_warmed_up = false;         // nor are they in what is served a second
  LatencyHistogram gaps;                // seconds between tokens of an answer, of all of them
  double seconds = 0;                   // from the first arrival to the last token
  // Requests that had no place when the last arrived, or the last of those that follow nothing, the more of the two:
  // where they are many, more come than can be served.
  std::size_t waiting_at_end = 0;
  Replica::Totals totals;               // sums over the replicas, and the largest of each
  // Of the servers of prompts alone, where there are some (disaggregated.hpp); the links from them carried something
  // for so many seconds, added up.
  Replica::Totals prompt_totals;
  double link_seconds = 0;
  bool gave_up = false;  // more requests were late than may be: nothing else is whole
};

// Counts those that are late, as they end.
class LateRequests {
 public:
  // `requests` outlives this. Without a limit none is late.
  LateRequests(const std::optional<LateLimit>& limit, const std::vector<ServedRequest>& requests)
      : limit_(limit), requests_(requests) {}
  // These requests are answered; whether too many are late by now.
  bool too_many_with(std::span<const std::size_t> answered);

 private:
  const std::optional<LateLimit>& limit_;
  const std::vector<ServedRequest>& requests_;
  std::size_t late_ = 0;
};

// Each request fits by itself (ServingCosts); the first follows nothing. Deterministic.
ServingOutcome simulate_serving(const ServingCosts& costs, const ServingSetup& setup,
                                const std::vector<Request>& requests);

struct LatencySummary {
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0;  // seconds
};
// Percentiles by the nearest rank. Nothing is asked of an empty list: all are 0.
LatencySummary summarise_latency(std::vector<double> seconds);

struct ServingSummary {
  LatencySummary first_token, token, gap, whole;  // of requests (a mean token of each), gaps: of tokens
  double requests_per_s = 0, tokens_per_s = 0;    // over the whole simulation
};
ServingSummary summarise_serving(const ServingOutcome& outcome);

// Whether more requests, or conversations, had no place when the last came than random arrivals explain: where they go
// on coming like that, times depend on how long it lasts.
bool falls_behind(const ServingOutcome& outcome);

// The share of requests, but for those of the warm-up, whose first token and whose mean token came in time; seconds,
// infinity: any.
double attainment(const ServingOutcome& outcome, double first_token, double token);

}  // namespace kvroof
