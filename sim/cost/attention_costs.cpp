#include "sim/cost/attention_costs.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {
namespace {

using F = DeviceField;

constexpr double kPromptSpread = 0.30;         // a prior (docs/method.md)
constexpr double kPromptAttentionShare = 0.60;  // of the peak, what a prompt's attention reaches
// Microseconds that a multiprocessor takes for one KV head of a sequence in decode attention, however few its rows: 10
// to 14 ns a head on 132 and 148 of them in tables of 1,024 and 2,048 sequences of 3 to 31 tokens (H200 and B200,
// TensorRT-LLM and vLLM, ai-dynamo/aiconfigurator @095f58a).
constexpr double kHeadUs = 1.4;
constexpr double kMultiprocessors = 132;  // of a board whose catalog entry does not say, as H100 has

// Query heads that share a storage head, as a mean of the rows that decode steps attend to.
double mean_group(const ModelShape& shape, const ResidencySummary& residency) {
  const double most = static_cast<double>(shape.heads) / std::max(residency.storage_heads, 1U);
  const auto others = static_cast<double>(residency.decode.attended_other);
  if (!(others > 0)) return most;
  const auto all = static_cast<double>(residency.decode.attended);
  const double rows_of_head = static_cast<double>(shape.other.head_dim) / shape.head_dim;
  return most + others / all * (other_group(shape, residency.storage_heads) / rows_of_head - most);
}

// Products of a cache of 8 bits and less are computed in 16 bits.
Rate peak_of(const Placement& placed, const Device& device) {
  const KvType& kv = placed.types().kv;
  return rate(device, F::kMatmulFraction, device.peak(kv.bits() <= 8 ? DType::kF16 : kv.rows()).value);
}

}  // namespace

AttentionCosts::AttentionCosts(const Placement& placed, const KernelRates& rates, const Device& device)
    : placed_(placed),
      rates_(rates),
      peak_(peak_of(placed, device)),
      prompt_peak_{std::min(1.0, kPromptAttentionShare / device.value(F::kMatmulFraction)) * peak_.value,
                   kPromptSpread},
      start_(rate(device, F::kAttentionFloorUs, 1e-6)),
      call_(rate(device, F::kAttentionCallUs, 1e-6)),
      cold_(rate(device, F::kAttentionColdUs, 1e-6)),
      index_(placed, rates, device),
      states_(placed, rates, peak_) {
  if (rates.together) return;
  head_seconds_ = kHeadUs * 1e-6 / (device.fact(F::kSmCount) ? device.value(F::kSmCount) : kMultiprocessors);
}

double AttentionCosts::probability_bytes(const ResidencySummary& residency, std::uint64_t queries) const {
  return 4 * mean_group(placed_.shape, residency) * residency.attended_rows() * static_cast<double>(queries);
}

void AttentionCosts::add_step(Parts& parts, const ResidencySummary& residency, const StepTraffic& traffic,
                              std::uint64_t sequences, std::uint64_t queries, Rate reading) const {
  const auto bytes = [&](Cause c) { return static_cast<double>(traffic.bytes[c]); };
  const ModelShape& shape = placed_.shape;
  const EngineProfile& engine = placed_.engine;
  const double layers = shape.layers, group = mean_group(shape, residency);
  const double held = placed_.kv_share_of(residency, residency.decode);
  // Logits and probabilities are each written and read once when attention is not fused.
  const double unfused = engine.fused_attention ? 0 : 4 * probability_bytes(residency, queries);
  const double heads_there = static_cast<double>(sequences) * placed_.kv_share * std::max(shape.kv_heads, 1U);
  // Where each query head reads by itself, the rows that a group shares pass once if the cache holds them for all of
  // it, and as often as it has heads if it holds none: the middle, and a width that holds both.
  double rows_read = held;
  if (engine.reads_by_query_head && group > 1) {
    rows_read = 0.5 * (held + placed_.share * group);
    reading.spread = std::max(reading.spread, 0.8 * (group - 1) / (group + 1));
  }
  rows_read += held * engine.cache_passes;
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, layers, start_,
                     rows_read * (bytes(Cause::kKvRead) - static_cast<double>(traffic.index_bytes)) +
                         placed_.written_share_of(residency) * bytes(Cause::kKvWrite) + placed_.share * unfused,
                     index_.of_chosen_rows(reading, engine.chosen_share),
                     index_.head_share() * traffic[KernelFamily::kAttention].value +
                         operations_of(layers * heads_there),
                     index_.of_chosen_rows(peak_, engine.chosen_share));
  index_.add_wide_queries(parts, queries);
  index_.add(parts, traffic, queries, false);
  states_.add(parts, traffic, false);
}

double AttentionCosts::earlier_bytes(const ResidencySummary& residency) const {
  if (residency.cached == 0) return 0;
  const auto all = static_cast<double>(kv_bytes(placed_.shape, placed_.types().kv, residency.cached).value);
  // Few queries choose fewer of them than there are.
  const double chosen = double{1} * residency.computed_tokens() * placed_.shape.index.tokens;
  const double share = chosen > 0 ? std::min(1.0, chosen / residency.cached) : 1;
  return placed_.kv_share_of(residency, residency.cached_prefill) * share * all;
}

double AttentionCosts::heads_beside_latent() const {
  const ModelShape& shape = placed_.shape;
  const double of_heads = double{1} * shape.latent_nope_dim + shape.latent_rope_dim + shape.latent_v_dim;
  return shape.latent() ? of_heads / (shape.head_dim + shape.v_head_dim) : 1;
}

void AttentionCosts::add_prompts(Parts& parts, const ResidencySummary& residency, const StepTraffic& traffic,
                                 std::uint64_t sequences, bool beside) const {
  const ModelShape& shape = placed_.shape;
  const EngineProfile& engine = placed_.engine;
  const std::uint64_t tokens = sequences * residency.computed_tokens();
  const double layers = shape.layers, held = placed_.written_share_of(residency);
  // A policy that looks at the probabilities of a prompt has q · k computed a second time.
  const double passes = residency.needs_probabilities ? 1.5 : 1;
  const bool chosen = index_.chooses(residency.computed_prefill());
  const double share =
      chosen ? index_.head_share() : placed_.share * (engine.expands_latent ? heads_beside_latent() : 1);
  // Logits and probabilities of 16 bits are each written and read once when attention is not fused.
  const double unfused = engine.fused_attention ? 0
                                                : 4.0 * 2 * layers * shape.heads * static_cast<double>(tokens) *
                                                      static_cast<double>(residency.prompt);
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, beside ? 0 : layers, start_,
                     static_cast<double>(sequences) * earlier_bytes(residency) +
                         held * static_cast<double>(traffic.bytes[Cause::kKvWrite]) + placed_.share * unfused,
                     rates_.attention_bandwidth, passes * (share * traffic[KernelFamily::kAttention].value),
                     chosen ? index_.of_chosen_rows(prompt_peak_, engine.chosen_prompt_share) : prompt_peak_);
  index_.add_wide_queries(parts, tokens);
  if (chosen) index_.add(parts, traffic, tokens, true, beside);
  states_.add(parts, traffic, true, beside);
}

// A call by itself waits for its last block; the part of its rows that the repetition before it left in the cache hides
// that, and a cold start, as neighbours do within a step.
Parts AttentionCosts::call(double kv_bytes, double heads) const {
  Parts parts;
  const double cold = rates_.cache_bytes > 0 ? 1 - std::exp(-kv_bytes / rates_.cache_bytes) : 1;
  parts.add(CostTerm::kAttention, Limit::kLaunches, cold * cold_.value, cold_.spread);
  parts.add_roofline(CostTerm::kAttention, Limit::kKv, 1, call_, kv_bytes, rates_.attention_bandwidth,
                     operations_of(heads), peak_);
  return parts;
}

}  // namespace kvroof
