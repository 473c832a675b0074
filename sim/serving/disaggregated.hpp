// Disaggregated serving: some servers compute prompts alone, the others go on with answers, and caches move between
// them (DistServe, OSDI 2024; Splitwise, ISCA 2024; Mooncake, FAST 2025; NVIDIA Dynamo; vLLM with NIXL).
//
// A request goes to the server of prompts that has fewest. The step that ends its prompt makes its first token and
// leaves the rows that the policy keeps. The request then waits, at the server of answers that has fewest, for a place
// with room for its cache; when it has one its rows move, whole, and with the next step after that its answer goes on.
// The server of its prompt has them in memory until then. Caches are promised links in the order in which their
// requests get places; neither the link of a server of prompts nor that of one of answers carries two at once. A
// sequence that loses its place is computed anew where it was. Prefix caches are those of the servers of prompts: what
// they find moves with the rest, and servers of answers keep nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/serving/simulate.hpp"

namespace kvroof {

// From a server to another; each device of theirs has a link of its own, and its share of a cache.
struct TransferLink {
  double bytes_per_s = 0;      // of a device; above 0, or infinity
  double latency_seconds = 0;  // before the cache is there, beside its bytes, during which the link is free for others

  friend bool operator==(const TransferLink&, const TransferLink&) = default;
};

struct DisaggregatedSetup {
  SchedulerLimits prompt_limits, limits;
  std::uint32_t prompt_replicas = 1, replicas = 1;  // servers of prompts; of answers
  TransferLink link;
  std::uint32_t clients = 0;  // as of ServingSetup
  std::optional<PrefixCacheSetup> prefixes = {};  // of each server of prompts
  bool routes_by_prefix = false;                  // to these: chosen_replica()
  std::optional<LateLimit> late = {};
  std::span<const double> pauses = {};  // as of ServingSetup, and the next
  std::size_t most_requests = std::numeric_limits<std::size_t>::max();
};

// The costs of a server of prompts and of one of answers. Each request fits on both by itself. Deterministic.
ServingOutcome simulate_disaggregated(const ServingCosts& prompt_costs, const ServingCosts& costs,
                                      const DisaggregatedSetup& setup, const std::vector<Request>& requests);

}  // namespace kvroof
