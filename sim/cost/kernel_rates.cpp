#include "sim/cost/kernel_rates.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

using F = DeviceField;

constexpr double kUnderWaySpread = 0.25;  // a prior (docs/method.md)

// Weights: what keeps enough bytes under way, else a share of the bandwidth.
Rate weights_bandwidth(const Placement& placed, const Device& device) {
  const Rate of_bandwidth = rate(device, F::kLinearFraction, device.bandwidth().value);
  const EngineProfile& engine = placed.engine;
  const bool other_rate = !placed.deployment.weights.quantised() && engine.plain_bytes_per_clock > 0;
  const double per_clock = other_rate ? engine.plain_bytes_per_clock : engine.bytes_per_clock;
  if (!(per_clock > 0) || !device.fact(F::kSmCount) || !device.fact(F::kBoostMhz)) return of_bandwidth;
  const double under_way = device.value(F::kSmCount) * device.value(F::kBoostMhz) * 1e6 * per_clock;
  return under_way < of_bandwidth.value ? Rate{under_way, kUnderWaySpread} : of_bandwidth;
}

}  // namespace

Rate rate(const Device& device, DeviceField field, double unit) {
  const std::optional<Fact>& fact = device.fact(field);
  check(fact.has_value(), "a device of a cost model has its achieved facts");
  return {fact->value * unit, fact->spread};
}

KernelRates::KernelRates(const Placement& placed, const Device& device)
    : linear_bandwidth(weights_bandwidth(placed, device)),
      attention_bandwidth(rate(device, F::kAttentionFraction, device.bandwidth().value)),
      kernel_start(rate(device, F::kLinearT0Us, 1e-6)),
      cache_bytes(device.fact(F::kL2Mib) ? device.value(F::kL2Mib) * 1024 * 1024 : 0),
      working_sets(device.working_sets),
      together(device.kind == DeviceKind::kCpu) {}

// Between two sizes that were measured, by the time a byte takes and the logarithm of the size: what a cache holds of a
// larger set falls little by little.
KernelRates::Reading KernelRates::of_working_set(double bytes) const {
  if (working_sets.empty()) return {linear_bandwidth, attention_bandwidth};
  const double mib = bytes / (1 << 20);
  const auto above = std::find_if(working_sets.begin(), working_sets.end(),
                                  [&](const WorkingSet& set) { return set.mib >= mib; });
  const WorkingSet& high = above == working_sets.end() ? working_sets.back() : *above;
  const WorkingSet& low = above == working_sets.begin() || above == working_sets.end() ? high : *(above - 1);
  const double share = high.mib > low.mib ? std::log(mib / low.mib) / std::log(high.mib / low.mib) : 0;
  const auto between = [&](double WorkingSet::* rate) {
    const double value = 1e9 / ((1 - share) / (low.*rate) + share / (high.*rate));
    return Rate{value, (1 - share) * low.spread + share * high.spread};
  };
  return {between(&WorkingSet::linear_gb_per_s), between(&WorkingSet::attention_gb_per_s)};
}

}  // namespace kvroof
