// The answer of `kvroof plan`: how many sequences a deployment serves within the goals, and the best of several.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/conformal.hpp"
#include "apps/workload.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

struct Goals {
  std::optional<std::uint64_t> batch;  // nothing: the largest
  std::optional<double> tpot_ms, ttft_ms;
};

struct Plan {
  Deployment deployment = TrafficTypes{};
  std::uint64_t batch = 0;
  std::uint64_t largest_in_memory = 0;  // whatever the time
  std::uint64_t largest = 0;            // that also meets the goals
  Estimate largest_interval;            // of it, from those of memory and time
  std::string limited_by;  // what allows no larger batch: capacity, tpot, ttft; of a batch that was given, its step's
  Prediction prediction;
  Estimate first_token;              // of one prompt by itself
  Estimate p99_step, worst_step;     // of the steps of a sequence: what 99 % do not exceed, and the slowest
  IntervalFactors step_factors, first_token_factors, memory_factors;
  MemoryLedger ledger;
  std::uint32_t longest_prompt = 0;  // that fits with this batch; 0: none

  [[nodiscard]] bool met() const { return batch > 0 && prediction.fits; }
  [[nodiscard]] std::uint32_t devices() const { return deployment.tensor_parallel * deployment.stages; }
  [[nodiscard]] double tokens_per_s_a_device() const { return prediction.tokens_per_s.value / devices(); }
};

Plan make_plan(const WorkloadRequest& request, const Deployment& deployment, const Device& device,
               const Workload& workload, const Goals& goals);

// A plan for each deployment of the request, in its order.
std::vector<Plan> search_plans(const WorkloadRequest& request, const Device& device, const Workload& workload,
                               const Goals& goals);
// The one of those that meet the goals that makes most tokens a second on each device, fewer devices first; the first
// where none does.
std::size_t best_plan(const std::vector<Plan>& plans);

// What would meet the goals where a plan does not: the fewest devices with its types, the widest type on its devices.
struct Remedy {
  std::string change;  // "--tp 2"
  std::uint64_t batch = 0;
};
std::vector<Remedy> remedies(const WorkloadRequest& request, const Plan& plan, const Device& device,
                             const Workload& workload, const Goals& goals);

}  // namespace kvroof
