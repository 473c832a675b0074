#include "sim/cost/index_costs.hpp"

#include <algorithm>

namespace kvroof {
namespace {

// Constants are of tables of whole attention modules of DeepSeek-V3.2 and GLM-5 (docs/method.md, "Chosen tokens"), and
// of attention beside compressed rows, by itself, of DeepSeek-V4 ("Compressed rows").
constexpr double kIndexSpread = 0.30, kChosenSpread = 0.40;
// A kernel that scores, and one that finds the highest scores; each score, in 32 bits, is written and read once.
constexpr double kIndexKernels = 2;
constexpr double kScoreBytes = 2 * sizeof(float);
constexpr double kKeysShare = 0.88;  // of what attention reads its rows at
// Finding the highest scores of a prompt: 12 ps a score on 132 multiprocessors, whatever the memory (H100 and H200).
constexpr double kScoreSeconds = 12e-12;
// Kernels compute this many query heads, however few a device has.
constexpr double kFewestHeads = 64;
// A query of so many heads of 512 beside compressed rows, whatever rows it reads, on 132 multiprocessors: of 80 ns
// (H200; 60 on B200's 148) in calls of 1,024 sequences that read a row each, what its own bytes do not explain.
constexpr double kWideQuerySeconds = 50e-9;

}  // namespace

// Keys and queries are FP8; a board without such products has them in 16 bits.
IndexCosts::IndexCosts(const Placement& placed, const KernelRates& rates, const Device& device)
    : placed_(placed), rates_(rates) {
  const bool own = device.fact(DeviceField::kPeakFp8Tflops).has_value();
  const double peak = own ? device.value(DeviceField::kPeakFp8Tflops) * 1e12 : device.peak(DType::kBF16).value;
  peak_ = {rate(device, DeviceField::kMatmulFraction, peak).value, kIndexSpread};
  const auto& multiprocessors = device.fact(DeviceField::kSmCount);
  const double beside_132 = multiprocessors ? 132 / multiprocessors->value : 1;
  score_ = kScoreSeconds * beside_132;
  wide_query_ = kWideQuerySeconds * beside_132;
}

// Engines keep the index whole on each device that shares a layer.
void IndexCosts::add(Parts& parts, const StepTraffic& traffic, std::uint64_t queries, bool prompts,
                     bool beside) const {
  const ModelShape& shape = placed_.shape;
  const EngineProfile& engine = placed_.engine;
  if (!shape.index) return;
  const double pairs = traffic.index_flops.value / shape.index.operations();
  // Blocks of a prompt's queries share the keys.
  const double keys = prompts ? 0 : static_cast<double>(traffic.index_bytes);
  const double calls = beside ? 0 : shape.index.layers;
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, kIndexKernels * calls,
                     {rates_.kernel_start.value, kIndexSpread}, keys + kScoreBytes * pairs,
                     {kKeysShare * rates_.attention_bandwidth.value, kIndexSpread}, traffic.index_flops.value, peak_);
  const double rows = static_cast<double>(queries * shape.index.layers) * shape.index.tokens;
  const double plain = shape.compressed ? 0 : engine.index_us;
  const double choosing = shape.compressed && !prompts && pairs > rows ? engine.choose_rows_us : plain;
  parts.add(CostTerm::kAttention, Limit::kLaunches, calls * choosing * 1e-6, kIndexSpread);
  if (prompts) parts.add(CostTerm::kAttention, Limit::kCompute, score_ * pairs, kIndexSpread);
}

void IndexCosts::add_wide_queries(Parts& parts, std::uint64_t queries) const {
  const ModelShape& shape = placed_.shape;
  if (!shape.compressed) return;
  const double of_layer = static_cast<double>(queries) * std::max(1.0, head_share() * shape.heads / kFewestHeads);
  parts.add(CostTerm::kAttention, Limit::kCompute, shape.layers * of_layer * wide_query_, kChosenSpread);
}

Rate IndexCosts::of_chosen_rows(Rate rate, double share) const {
  return placed_.shape.index || placed_.shape.compressed ? Rate{share * rate.value, kChosenSpread} : rate;
}

double IndexCosts::head_share() const {
  const bool chosen = placed_.shape.index || placed_.shape.compressed;
  return chosen ? std::max(placed_.share, kFewestHeads / placed_.shape.heads) : placed_.share;
}

bool IndexCosts::chooses(const LayerCounts& prompt) const {
  if (placed_.shape.compressed) return true;
  return placed_.shape.index && (prompt.indexed > prompt.attended || !placed_.engine.short_prompts_whole);
}

}  // namespace kvroof
