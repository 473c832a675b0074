// Which requests fit on a server by themselves.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "apps/simulate/simulate_request.hpp"
#include "sim/serving/serving_costs.hpp"

namespace kvroof {

// What the policy of a workload makes of prompts of a length, with the longest answer of all requests.
LengthProfile profile_of_length(const SimulateRequest& request, const Workload& workload, std::uint32_t prompt);

struct FittingRequests {
  std::vector<Request> requests;
  std::vector<std::size_t> numbers;        // of these among all; empty: all fit
  std::span<const LengthProfile> profiles; // ascending, the last of the longest prompt that fits; empty: none does
  std::vector<LengthProfile> own;          // where those are not all there are
};

// `all`: the profiles of all requests, which outlive the answer. Prompts with a token of their answer have to fit on
// each of the servers, whole answers on the first.
FittingRequests fitting_requests(const SimulateRequest& request, const Workload& workload,
                                 std::span<const LengthProfile> all, std::span<const CostModel* const> servers);

}  // namespace kvroof
