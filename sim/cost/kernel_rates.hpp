// What all kernels of a device have in common: the rates that they reach and how late they start; for the sources of
// the cost model alone.
#pragma once

#include <vector>

#include "sim/cost/parts.hpp"
#include "sim/cost/placement.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

inline constexpr double kActivationBytes = 2;  // an element of what kernels and devices hand on

// A fact of the device that it has, in other units.
Rate rate(const Device& device, DeviceField field, double unit);

struct KernelRates {
  KernelRates(const Placement& placed, const Device& device);

  Rate linear_bandwidth, attention_bandwidth;  // bytes/s that kernels reach
  Rate kernel_start;                           // seconds
  double cache_bytes = 0;
  std::vector<WorkingSet> working_sets;
  bool together = false;  // parts of a time are slow together, as on a CPU

  // What a step reads its weights and its caches at, so many bytes in all: the more there are, the fewer a cache holds.
  struct Reading {
    Rate linear, attention;
  };
  [[nodiscard]] Reading of_working_set(double bytes) const;
};

}  // namespace kvroof
