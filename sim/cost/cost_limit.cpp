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

// Operations a second of dense products in 16 bits, or in those of these types that the device has.
double CostModel::highest_peak(const Device& device, std::initializer_list<std::optional<DeviceField>> types) {
  double tflops = std::max(device.peak(DType::kF16).value, device.peak(DType::kBF16).value) * 1e-12;
  for (const std::optional<DeviceField>& type : types) {
    if (type && device.fact(*type)) tflops = std::max(tflops, device.value(*type));
  }
  return tflops * 1e12;
}

// Packed weights that have no products of their own on the board may be multiplied by activations in 8 bits (llama.cpp,
// QServe), as may rows of a cache of no more.
void CostModel::set_limits(const Device& device) {
  using F = DeviceField;
  const WeightFormat& format = deployment_.weights;
  const auto has = [&](const std::optional<F>& type) { return type && device.fact(*type); };
  const double eight_bits = highest_peak(device, {F::kPeakFp8Tflops, F::kPeakInt8Tops});
  const bool packed = std::min(format.layer_bits, format.expert_bits) < 8;
  const bool in_eight = packed && !has(format.peak) && !has(format.native);
  datasheet_bandwidth_ = device.bandwidth().value;
  datasheet_peak_ = in_eight ? eight_bits : highest_peak(device, {format.peak, format.native});
  datasheet_attention_peak_ = types_.kv.bits() <= 8 ? eight_bits : highest_peak(device, {});
}

// What no cache holds, at the memory's full bandwidth; or the arithmetic, at the highest peak that it can be computed
// at. Tokens may all ask for the same experts.
double CostModel::least_seconds(const StepTraffic& traffic, std::uint64_t tokens, double fill, double kv_bytes,
                                double state_bytes) const {
  if (!(datasheet_bandwidth_ > 0) || attention_only(shape_)) return 0;
  const ReadWeights read = read_weights(traffic, tokens, fill);
  const double bytes = share_ * (read.bytes - read.routed) + kv_bytes + share_ * state_bytes - kMostCached;
  const double linear = traffic[KernelFamily::kLinear].value - (1 - fill) * expert_operations(tokens);
  const double computing =
      linear / datasheet_peak_ + traffic[KernelFamily::kAttention].value / datasheet_attention_peak_;
  return std::max({0.0, bytes / datasheet_bandwidth_, share_ * computing});
}

// Calls by themselves are timed in a cold cache, or say more of the cache than of the call.
double CostModel::least_of_call(double bytes) const {
  return datasheet_bandwidth_ > 0 ? bytes / datasheet_bandwidth_ : 0;
}

}  // namespace kvroof
