#include "sim/cost/cost.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

using F = DeviceField;

// Normal quantiles: 80 % and 95 % of a distribution lie within 1.2816 and 1.9600 deviations.
constexpr double kWiden95 = 1.9600 / 1.2816;
// Relative half-widths (80 %) of what no device file states: priors, see docs/method.md.
constexpr double kChipSpread = 0.05;  // two boards of one product, clocks, temperature
constexpr double kHostSpread = 0.30;
constexpr double kPolicySpread = 0.50;
// Of the peak, what a prompt reaches, all that lies between the products included; set by judgement before any test.
constexpr double kPrefillShare = 0.60;
constexpr double kPrefillSpread = 0.30;

constexpr double square(double x) { return x * x; }

Estimate around(double value, double half_width, CostTerm dominated_by) {
  // Multiplicative, so that no bound is ever negative.
  const double h80 = 1 + half_width;
  const double h95 = 1 + half_width * kWiden95;
  return {value, value / h80, value * h80, value / h95, value * h95, dominated_by};
}

// Tokens per second from seconds per step: the fast end of one is the slow end of the other.
Estimate throughput(const Estimate& step, double tokens) {
  if (!(step.value > 0)) return {};
  return {tokens / step.value,  tokens / step.high80, tokens / step.low80,
          tokens / step.high95, tokens / step.low95,  step.dominated_by};
}

}  // namespace

// Seconds of one step by term and by limit, and the absolute half-width of each term.
struct CostModel::Parts {
  std::array<double, kCostTerms> seconds{};
  std::array<double, kCostTerms> width_squared{};
  std::array<double, kLimits> limits{};

  void add(CostTerm term, Limit limit, double s, double spread) {
    const auto t = static_cast<std::size_t>(term);
    seconds[t] += s;
    width_squared[t] += square(s * spread);
    limits[static_cast<std::size_t>(limit)] += s;
  }
  [[nodiscard]] double total() const {
    double sum = 0;
    for (const double s : seconds) sum += s;
    return sum;
  }
  // start + bytes / bandwidth, or operations / peak when that takes longer.
  void add_roofline(CostTerm term, Limit memory, double calls, Rate start, double bytes, Rate bandwidth, double flops,
                    Rate peak) {
    const double memory_time = calls * start.value + bytes / bandwidth.value;
    const double compute_time = flops / peak.value;
    if (compute_time > memory_time) return add(term, Limit::kCompute, compute_time, peak.spread);
    add(term, Limit::kLaunches, calls * start.value, start.spread);
    add(term, memory, bytes / bandwidth.value, bandwidth.spread);
  }
};

CostModel::Rate CostModel::rate(const Device& device, DeviceField field, double unit) const {
  const std::optional<Fact>& fact = device.fact(field);
  check(fact.has_value(), "a device of a cost model has its achieved facts");
  return {fact->value * unit, fact->spread};
}

CostModel::CostModel(const ModelShape& shape, TrafficTypes types, const Device& device, const EngineProfile& engine)
    : shape_(shape), types_(types), engine_(engine), capacity_(device.usable_memory()) {
  if (!attention_only(shape)) weights_ = weight_bytes(shape, types.weights);
  const double bandwidth = device.bandwidth().value;
  linear_bandwidth_ = rate(device, F::kLinearFraction, bandwidth);
  attention_bandwidth_ = rate(device, F::kAttentionFraction, bandwidth);
  matmul_fraction_ = device.value(F::kMatmulFraction);
  linear_peak_ = rate(device, F::kMatmulFraction, device.peak(types.weights).value);
  attention_peak_ = rate(device, F::kMatmulFraction, device.peak(types.kv).value);
  policy_peak_ = rate(device, F::kMatmulFraction, device.peak(DType::kF32).value);
  kernel_start_ = rate(device, F::kLinearT0Us, 1e-6);
  linear_start_ = kernel_start_;
  attention_start_ = rate(device, F::kAttentionFloorUs, 1e-6);
  elementwise_start_ = rate(device, F::kElementwiseUs, 1e-6);
  if (device.fact(F::kL2Mib)) cache_bytes_ = device.value(F::kL2Mib) * 1024 * 1024;
}

// The share of the activations that goes through memory: what operators hand on stays in half of the cache.
double CostModel::uncached(std::uint64_t tokens) const {
  const std::uint64_t q = std::uint64_t{shape_.heads} * shape_.head_dim;
  const std::uint64_t elements = std::max({std::uint64_t{shape_.hidden}, widest_mlp(shape_), q});
  const double widest = 4.0 * static_cast<double>(tokens) * static_cast<double>(elements);
  return widest > 0 ? std::max(0.0, 1 - 0.5 * cache_bytes_ / widest) : 0;
}

CostModel::Parts CostModel::parts_of(const ResidencySummary& residency, const StepTraffic& traffic,
                                     std::uint64_t batch) const {
  const auto bytes = [&](Cause c) { return static_cast<double>(traffic.bytes[c]); };
  const bool whole_model = !attention_only(shape_);
  const double layers = shape_.layers;
  const double group = static_cast<double>(shape_.heads) / std::max(residency.storage_heads, 1U);
  // One probability, f32, for each attended row and query head.
  const double probabilities = 4 * group * residency.attended_rows() * static_cast<double>(batch);
  Parts parts;
  if (whole_model) {
    parts.add_roofline(CostTerm::kLinear, Limit::kWeights, layers * engine_.linears_per_layer + 1, linear_start_,
                       bytes(Cause::kWeights), linear_bandwidth_, traffic[KernelFamily::kLinear].value, linear_peak_);
    parts.add(CostTerm::kElementwise, Limit::kLaunches, layers * elementwise_start_.value, elementwise_start_.spread);
    parts.add(CostTerm::kElementwise, Limit::kCompute,
              bytes(Cause::kActivations) * uncached(batch) / linear_bandwidth_.value, linear_bandwidth_.spread);
  }
  // Logits and probabilities are each written and read once when attention is not fused.
  const double unfused = engine_.fused_attention ? 0 : 4 * probabilities;
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, layers, attention_start_,
                     bytes(Cause::kKvRead) + bytes(Cause::kKvWrite) + unfused, attention_bandwidth_,
                     traffic[KernelFamily::kAttention].value, attention_peak_);
  // Written by attention and read by the policy.
  const double observed = residency.needs_probabilities ? 2 * probabilities : 0;
  const double policy_bytes = bytes(Cause::kScores) + bytes(Cause::kCompaction) + observed;
  if (policy_bytes > 0 || traffic[KernelFamily::kPolicy].value > 0) {
    Rate start = kernel_start_, bandwidth = attention_bandwidth_, peak = policy_peak_;
    start.spread = bandwidth.spread = peak.spread = kPolicySpread;
    parts.add_roofline(CostTerm::kPolicy, Limit::kKv, layers * engine_.policy_kernels, start, policy_bytes, bandwidth,
                       traffic[KernelFamily::kPolicy].value, peak);
  }
  if (!whole_model) return parts;
  // Without graphs the device waits for the host when launching takes longer than computing.
  const double launches = engine_.graphs ? 0 : layers * engine_.kernels_per_layer * engine_.launch_us * 1e-6;
  const double idle = std::max(0.0, launches - parts.total());
  const double host = idle + (engine_.step_us + engine_.request_us * static_cast<double>(batch)) * 1e-6;
  parts.add(CostTerm::kHost, Limit::kLaunches, host, kHostSpread);
  return parts;
}

// Prompts are bound by arithmetic; short ones by the weights, which are read once for all of them.
CostModel::Parts CostModel::prefill_parts(const ResidencySummary& residency, std::uint64_t batch) const {
  const std::uint64_t tokens = batch * residency.prompt;
  const auto sequences = static_cast<double>(batch);
  LayerCounts rows = residency.prefill;
  rows.attended *= batch;
  rows.written *= batch;
  rows.moved *= batch;
  const StepTraffic traffic = step_traffic(shape_, types_, {tokens, batch, residency.storage_heads, rows});
  const auto bytes = [&](Cause c) { return static_cast<double>(traffic.bytes[c]); };
  const double share = std::min(1.0, kPrefillShare / matmul_fraction_);
  const auto prompt_rate = [share](Rate best) { return Rate{share * best.value, kPrefillSpread}; };
  const double layers = shape_.layers;
  Parts parts;
  if (!attention_only(shape_)) {
    parts.add_roofline(CostTerm::kLinear, Limit::kWeights, layers * engine_.linears_per_layer + 1, linear_start_,
                       bytes(Cause::kWeights), linear_bandwidth_, traffic[KernelFamily::kLinear].value,
                       prompt_rate(linear_peak_));
    parts.add(CostTerm::kElementwise, Limit::kLaunches, layers * elementwise_start_.value, elementwise_start_.spread);
    parts.add(CostTerm::kHost, Limit::kLaunches, (engine_.step_us + engine_.request_us * sequences) * 1e-6,
              kHostSpread);
  }
  // A policy that looks at the probabilities of a prompt has q · k computed a second time.
  const double passes = residency.needs_probabilities ? 1.5 : 1;
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, layers, attention_start_, bytes(Cause::kKvWrite),
                     attention_bandwidth_, passes * traffic[KernelFamily::kAttention].value,
                     prompt_rate(attention_peak_));
  const double compaction = bytes(Cause::kCompaction);
  if (compaction > 0) {
    parts.add_roofline(CostTerm::kPolicy, Limit::kKv, layers * engine_.policy_kernels, kernel_start_, compaction,
                       {attention_bandwidth_.value, kPolicySpread}, 0, policy_peak_);
  }
  return parts;
}

Estimate CostModel::estimate_of(const Parts& parts) {
  const double total = parts.total();
  double width_squared = square(kChipSpread * total);
  for (const double w : parts.width_squared) width_squared += w;
  const auto widest = std::max_element(parts.width_squared.begin(), parts.width_squared.end());
  const auto dominated_by = static_cast<CostTerm>(widest - parts.width_squared.begin());
  return around(total, total > 0 ? std::sqrt(width_squared) / total : 0, dominated_by);
}

Estimate CostModel::prefill(const ResidencySummary& residency, std::uint64_t batch) const {
  return estimate_of(prefill_parts(residency, batch));
}

Estimate CostModel::product(std::uint64_t m, std::uint64_t n, std::uint64_t k) const {
  const auto elements = static_cast<double>(n * k);
  Parts parts;
  parts.add_roofline(CostTerm::kLinear, Limit::kWeights, 1, linear_start_,
                     elements * static_cast<double>(size_of(types_.weights)), linear_bandwidth_,
                     2 * static_cast<double>(m) * elements, linear_peak_);
  return estimate_of(parts);
}

Estimate CostModel::attention_call(Bytes kv_bytes) const {
  Parts parts;
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, 1, attention_start_, static_cast<double>(kv_bytes.value),
                     attention_bandwidth_, 0, attention_peak_);
  return estimate_of(parts);
}

Prediction CostModel::predict(const ResidencySummary& residency, std::uint64_t batch) const {
  const auto sequences = static_cast<double>(batch);
  Prediction p;
  p.batch = batch;
  p.fits = ledger(residency, batch).fits();
  p.traffic = mean_decode_traffic(shape_, types_, residency, batch);
  p.kv_resident = Bytes(static_cast<std::uint64_t>(
      std::llround(residency.resident_rows() * sequences * static_cast<double>(row_bytes(shape_, types_.kv)))));
  const Parts parts = parts_of(residency, p.traffic, batch);
  for (std::size_t i = 0; i < kCostTerms; ++i) p.terms[i] = Seconds(parts.seconds[i]);
  p.step = estimate_of(parts);
  p.tokens_per_s = throughput(p.step, sequences);
  const auto largest = std::max_element(parts.limits.begin(), parts.limits.end());
  p.limited_by = p.fits ? static_cast<Limit>(largest - parts.limits.begin()) : Limit::kCapacity;
  return p;
}

}  // namespace kvroof
