// What a policy's own kernels take: scores, counters, and copies of rows that stay; for the sources of the cost model
// alone.
#pragma once

#include "sim/cost/kernel_rates.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

class PolicyCosts {
 public:
  PolicyCosts(const Placement& placed, const KernelRates& rates, const Device& device);

  // `observed`: bytes of probabilities that attention leaves for the policy, on all devices.
  void add_step(Parts& parts, const ResidencySummary& residency, const StepTraffic& traffic, double observed) const;
  void add_prompts(Parts& parts, const ResidencySummary& residency, const StepTraffic& traffic) const;

 private:
  void add(Parts& parts, Rate start, double bytes, double bandwidth, const StepTraffic& traffic) const;

  const Placement& placed_;
  const KernelRates& rates_;
  double peak_ = 0;  // operations/s
};

}  // namespace kvroof
