// What a step launches; for the sources of the cost model alone.
#pragma once

#include "sim/cost/placement.hpp"

namespace kvroof {

// Launches of a step beside those of as many plain layers: of routed and shared experts, latent attention, indexes,
// compressed rows, residual streams and states.
struct MoreLaunches {
  double products = 0, others = 0;
  double quantised = 0;     // of all products of a step, those whose inputs are quantised for the format
  double expert_calls = 0;  // seconds that calls of experts start later than those products and kernels do
};
MoreLaunches more_launches(const Placement& placed);

}  // namespace kvroof
