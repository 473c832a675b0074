#include "sim/cost/datasheet_limit.hpp"

#include <algorithm>
#include <initializer_list>

namespace kvroof {
namespace {

using F = DeviceField;

// More than the caches of any device of the catalog hold.
constexpr double kMostCached = 256.0 * (1 << 20);

// Operations a second of dense products in 16 bits, or in those of these types that the device has.
double highest_peak(const Device& device, std::initializer_list<std::optional<F>> types) {
  double tflops = std::max(device.peak(DType::kF16).value, device.peak(DType::kBF16).value) * 1e-12;
  for (const std::optional<F>& type : types) {
    if (type && device.fact(*type)) tflops = std::max(tflops, device.value(*type));
  }
  return tflops * 1e12;
}

}  // namespace

// Packed weights that have no products of their own on the board may be multiplied by activations in 8 bits (llama.cpp,
// QServe), as may rows of a cache of no more.
DatasheetLimit::DatasheetLimit(const Placement& placed, const Device& device) : placed_(placed) {
  if (device.kind == DeviceKind::kCpu) return;
  const WeightFormat& format = placed.deployment.weights;
  const auto has = [&](const std::optional<F>& type) { return type && device.fact(*type); };
  const double eight_bits = highest_peak(device, {F::kPeakFp8Tflops, F::kPeakInt8Tops});
  const bool packed = std::min(format.layer_bits, format.expert_bits) < 8;
  const bool in_eight = packed && !has(format.peak) && !has(format.native);
  bandwidth_ = device.bandwidth().value;
  peak_ = in_eight ? eight_bits : highest_peak(device, {format.peak, format.native});
  attention_peak_ = placed.types().kv.bits() <= 8 ? eight_bits : highest_peak(device, {});
}

// What no cache holds, at the memory's full bandwidth; or the arithmetic, at the highest peak that it can be computed
// at. Tokens may all ask for the same experts.
double DatasheetLimit::seconds_of(const LinearWork& linear, double attention_flops, double state_bytes,
                                  double kv_bytes) const {
  if (!(bandwidth_ > 0) || attention_only(placed_.shape)) return 0;
  const double shared = linear.bytes - linear.expert_bytes + state_bytes;
  const double bytes = placed_.share * shared + kv_bytes - kMostCached;
  const double computing = linear.operations() / peak_ + attention_flops / attention_peak_;
  return std::max({0.0, bytes / bandwidth_, placed_.share * computing});
}

double DatasheetLimit::seconds_of_call(double bytes) const { return bandwidth_ > 0 ? bytes / bandwidth_ : 0; }

}  // namespace kvroof
