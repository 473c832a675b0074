// Times of parts by themselves: a layer, a product, a call of attention, an element-wise kernel.
#include "sim/cost/cost_parts.hpp"

namespace kvroof {
namespace {

// Two norms, a rotation and an activation are the element-wise work of a layer.
constexpr double kElementwiseCalls = 4;

}  // namespace

Estimate CostModel::layer(const ResidencySummary& residency, std::uint64_t batch) const {
  const std::uint64_t own = of_a_group(batch);
  const double fill = fill_of(batch);
  const StepTraffic traffic = mean_decode_traffic(shape_, types_, residency, own);
  Parts parts = parts_of(residency, traffic, own, fill, {}, 0);
  // The head is the one product that is of no layer.
  const auto elements = static_cast<double>(head_parameters(shape_));
  Parts head;
  const double kv_read = kv_share(residency.storage_heads) * static_cast<double>(traffic.bytes[Cause::kKvRead]);
  const auto computed = static_cast<double>(engine_.padded(own, 1));
  head.add_roofline(CostTerm::kLinear, Limit::kWeights, 1, linear_start_,
                    share_ * elements * deployment_.weights.head_bits / 8, reading(traffic, own, fill, kv_read).linear,
                    share_ * 2 * elements * computed, linear_peak_);
  constexpr auto kLinear = static_cast<std::size_t>(CostTerm::kLinear);
  constexpr auto kHost = static_cast<std::size_t>(CostTerm::kHost);
  parts.seconds[kLinear] -= head.seconds[kLinear];
  parts.seconds[kHost] = parts.width_squared[kHost] = parts.least = 0;
  for (std::size_t i = 0; i < kCostTerms; ++i) {
    parts.seconds[i] /= shape_.depth();
    parts.width_squared[i] /= square(shape_.depth());
  }
  return estimate_of(parts);
}

Estimate CostModel::product(std::uint64_t m, std::uint64_t n, std::uint64_t k) const {
  const auto elements = static_cast<double>(n * k);
  Parts parts;
  const Rate start{linear_start_.value + quantise_fused_ + quantise_apart_, linear_start_.spread};
  parts.add_roofline(CostTerm::kLinear, Limit::kWeights, 1, start,
                     elements * deployment_.weights.layer_bits / 8, linear_bandwidth_,
                     2 * static_cast<double>(m) * elements, linear_peak_);
  parts.add(CostTerm::kLinear, Limit::kLaunches, static_cast<double>(k) * walk_.value, walk_.spread);
  // Inputs of 16 bits are read, and written in the format's own; measured shares of a peak hold that.
  const bool apart = quantise_apart_ > 0 && !deployment_.weights.share;
  const double inputs = apart ? static_cast<double>(m * k) * (16 + deployment_.weights.layer_bits) / 8 : 0;
  parts.add(CostTerm::kElementwise, Limit::kCompute, inputs / linear_bandwidth_.value, linear_bandwidth_.spread);
  parts.least = least_of_call(elements * deployment_.weights.layer_bits / 8);
  return estimate_of(parts);
}

Estimate CostModel::attention_call(Bytes kv_bytes, double heads) const {
  Parts parts;
  const auto bytes = static_cast<double>(kv_bytes.value);
  // A call by itself starts on an idle memory and waits for its last block; the part of its rows that the repetition
  // before it left in the cache hides that, as neighbours do within a step.
  const double cold = cache_bytes_ > 0 ? 1 - std::exp(-bytes / cache_bytes_) : 1;
  parts.add(CostTerm::kAttention, Limit::kLaunches, cold * attention_cold_.value, attention_cold_.spread);
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, 1, attention_call_, bytes, attention_bandwidth_,
                     operations_of(heads), attention_peak_);
  parts.least = least_of_call(bytes);
  return estimate_of(parts);
}

Estimate CostModel::elementwise_call(std::uint64_t elements) const {
  Parts parts;
  // Read and written; half of the cache holds what the call before it wrote.
  const double bytes = 2 * kActivationBytes * static_cast<double>(elements);
  const double through = std::max(0.0, bytes - 0.5 * cache_bytes_);
  parts.add(CostTerm::kElementwise, Limit::kLaunches, elementwise_start_.value / kElementwiseCalls,
            elementwise_start_.spread);
  parts.add(CostTerm::kElementwise, Limit::kCompute, through / linear_bandwidth_.value, linear_bandwidth_.spread);
  return estimate_of(parts);
}

}  // namespace kvroof
