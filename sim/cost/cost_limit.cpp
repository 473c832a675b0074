// What no time is below: the datasheet.
#include <algorithm>

#include "sim/cost/cost.hpp"

namespace kvroof {
namespace {

// More than the caches of any device of the catalog hold.
constexpr double kMostCached = 256.0 * (1 << 20);

}  // namespace

double possible(const Estimate& e, double x) {
  if (!(e.limit > 0)) return x;
  return e.is_rate ? std::min(x, e.limit) : std::max(x, e.limit);
}

// Operations a second of dense products in 16 bits and more; with quantised weights, in any type.
double CostModel::highest_peak(const Device& device, bool quantised) {
  double tflops = std::max(device.peak(DType::kF16).value, device.peak(DType::kBF16).value) * 1e-12;
  using F = DeviceField;
  for (const F field : {F::kPeakFp8Tflops, F::kPeakFp4Tflops, F::kPeakInt8Tops}) {
    if (quantised && device.fact(field)) tflops = std::max(tflops, device.value(field));
  }
  return tflops * 1e12;
}

// What no cache holds, at the memory's full bandwidth; or the arithmetic, at the highest peak that it can be computed
// at. Tokens may all ask for the same experts.
double CostModel::least_seconds(const StepTraffic& traffic, std::uint64_t tokens, double fill, double kv_bytes,
                                double state_bytes) const {
  if (!(datasheet_bandwidth_ > 0) || attention_only(shape_)) return 0;
  const ReadWeights read = read_weights(traffic, tokens, fill);
  const double bytes = share_ * (read.bytes - read.routed) + kv_share_ * kv_bytes + share_ * state_bytes - kMostCached;
  const double linear = traffic[KernelFamily::kLinear].value - (1 - fill) * expert_operations(tokens);
  const double operations = share_ * (linear + traffic[KernelFamily::kAttention].value);
  return std::max({0.0, bytes / datasheet_bandwidth_, operations / datasheet_peak_});
}

// Calls by themselves are timed in a cold cache, or say more of the cache than of the call.
double CostModel::least_of_call(double bytes) const {
  return datasheet_bandwidth_ > 0 ? bytes / datasheet_bandwidth_ : 0;
}

}  // namespace kvroof
