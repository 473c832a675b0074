#include "sim/cost/policy_costs.hpp"

namespace kvroof {
namespace {

constexpr double kPolicySpread = 0.50;  // a prior (docs/method.md)

}  // namespace

PolicyCosts::PolicyCosts(const Placement& placed, const KernelRates& rates, const Device& device)
    : placed_(placed),
      rates_(rates),
      peak_(rate(device, DeviceField::kMatmulFraction, device.peak(DType::kF32).value).value) {}

void PolicyCosts::add(Parts& parts, Rate start, double bytes, double bandwidth, const StepTraffic& traffic) const {
  const double operations = placed_.share * traffic[KernelFamily::kPolicy].value;
  if (!(bytes > 0) && !(operations > 0)) return;
  parts.add_roofline(CostTerm::kPolicy, Limit::kKv, double{1} * placed_.shape.layers * placed_.engine.policy_kernels,
                     start, bytes, {bandwidth, kPolicySpread}, operations, {peak_, kPolicySpread});
}

void PolicyCosts::add_step(Parts& parts, const ResidencySummary& residency, const StepTraffic& traffic,
                           double observed) const {
  const double held = placed_.kv_share_of(residency, residency.decode);
  const auto bytes = static_cast<double>(traffic.bytes[Cause::kScores] + traffic.bytes[Cause::kCompaction]);
  add(parts, {rates_.kernel_start.value, kPolicySpread}, held * bytes + placed_.share * observed,
      placed_.engine.policy_share * rates_.attention_bandwidth.value, traffic);
}

// Scores are summed up on the chip while the queries of a prompt pass.
void PolicyCosts::add_prompts(Parts& parts, const ResidencySummary& residency, const StepTraffic& traffic) const {
  const double held = placed_.kv_share_of(residency, residency.prefill);
  add(parts, rates_.kernel_start, held * static_cast<double>(traffic.bytes[Cause::kCompaction]),
      rates_.attention_bandwidth.value, traffic);
}

}  // namespace kvroof
