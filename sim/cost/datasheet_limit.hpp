// What no time is below: the datasheet; for the sources of the cost model alone.
#pragma once

#include "sim/cost/linear_costs.hpp"
#include "sim/cost/placement.hpp"

namespace kvroof {

class DatasheetLimit {
 public:
  DatasheetLimit(const Placement& placed, const Device& device);

  // Of a pass. Attention's arithmetic and states: of all devices that share a layer; `kv_bytes`: read on this device.
  [[nodiscard]] double seconds_of(const LinearWork& linear, double attention_flops, double state_bytes,
                                  double kv_bytes) const;
  // Of a call by itself, timed in a cold cache, or one that says more of the cache than of the call.
  [[nodiscard]] double seconds_of_call(double bytes) const;

 private:
  const Placement& placed_;
  // Bytes/s; operations/s of products with weights and of attention. 0: caches hold models, no limit.
  double bandwidth_ = 0, peak_ = 0, attention_peak_ = 0;
};

}  // namespace kvroof
