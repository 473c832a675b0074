#include "sim/cost/state_costs.hpp"

#include <algorithm>

namespace kvroof {
namespace {

// Of the rate at which attention reads rows, what kernels that read a state and write it reach. vLLM's update of gated
// delta nets reads and writes 2.55 TB/s on H200 and 3.4 to 3.6 on B200, 0.61 and 0.50 to 0.53 of that rate, with
// states of 16 bits (vllm-project/vllm #31722); one of Mamba-2 in 32 bits was seen at 4.6 TB/s on a B200.
constexpr double kStateShare = 0.60;
constexpr double kStateSpread = 0.25;
// Of the peak, what the chunked kernels of prompts reach, operations counted as in a step: 0.05 of that of attention by
// flash-linear-attention and 0.07 to 0.2 by FlashInfer on H100, half of that on B200 (flashinfer-ai/flashinfer #3866,
// vllm-project/vllm #43273).
constexpr double kPromptShare = 0.05;
constexpr double kPromptSpread = 0.60;

}  // namespace

StateCosts::StateCosts(const Placement& placed, const KernelRates& rates, Rate peak)
    : placed_(placed),
      start_(rates.kernel_start),
      bandwidth_{kStateShare * rates.attention_bandwidth.value,
                 std::max(kStateSpread, rates.attention_bandwidth.spread)},
      peak_(peak) {}

// A decode step reads each sequence's state and writes it; of a prompt the arithmetic is most. The update is one
// kernel; the convolution before it is counted with the other launches.
void StateCosts::add(Parts& parts, const StepTraffic& traffic, bool prompts, bool beside) const {
  if (placed_.shape.state.layers == 0) return;
  const Rate peak = prompts ? Rate{kPromptShare * peak_.value, kPromptSpread} : peak_;
  parts.add_roofline(CostTerm::kAttention, Limit::kStates, beside ? 0 : placed_.shape.state.layers, start_,
                     placed_.share * static_cast<double>(traffic.state_bytes), bandwidth_,
                     placed_.share * traffic.state_flops.value, peak);
}

Parts StateCosts::call(double bytes) const {
  Parts parts;
  parts.add_roofline(CostTerm::kAttention, Limit::kStates, 1, start_, bytes, bandwidth_, 0, peak_);
  return parts;
}

}  // namespace kvroof
