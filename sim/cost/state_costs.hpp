// What layers take that hold a state in place of a cache; for the sources of the cost model alone.
#pragma once

#include "sim/cost/kernel_rates.hpp"
#include "sim/traffic/traffic.hpp"

namespace kvroof {

class StateCosts {
 public:
  // `peak`: of the arithmetic of attention.
  StateCosts(const Placement& placed, const KernelRates& rates, Rate peak);

  // `beside`: its kernels start with those of others.
  void add(Parts& parts, const StepTraffic& traffic, bool prompts, bool beside = false) const;
  // An update of states by itself, of which so many bytes are read and written.
  [[nodiscard]] Parts call(double bytes) const;

 private:
  const Placement& placed_;
  Rate start_, bandwidth_, peak_;
};

}  // namespace kvroof
