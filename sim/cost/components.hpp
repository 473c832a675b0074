// What a cost model is made of, and how its passes add up; for the sources of the cost model alone.
#pragma once

#include <algorithm>
#include <memory>

#include "sim/cost/attention_costs.hpp"
#include "sim/cost/cost.hpp"
#include "sim/cost/datasheet_limit.hpp"
#include "sim/cost/host_costs.hpp"
#include "sim/cost/linear_costs.hpp"
#include "sim/cost/link_costs.hpp"
#include "sim/cost/policy_costs.hpp"

namespace kvroof {

// They refer to each other, so that they stay where they were made.
struct CostModel::Components {
  Components(Placement placement, const Device& device);
  Components(const Components&) = delete;

  // `traffic`: that of the pass.
  [[nodiscard]] Parts pass_parts(const ResidencySummary& residency, const StepTraffic& traffic, const Pass& pass,
                                 StepTokens tokens) const;
  // A pass of the target with what it verifies, and with the drafts before it.
  [[nodiscard]] Parts step_parts(const ResidencySummary& residency, const StepTraffic& traffic, const Pass& pass) const;
  [[nodiscard]] Parts draft_parts(const ResidencySummary& residency, const Pass& pass) const;
  // A pass of the target over prompts; and all that these take, with what drafts and what they have the model repeat.
  [[nodiscard]] Parts target_prompt_parts(const ResidencySummary& residency, const Pass& pass) const;
  [[nodiscard]] Parts prompt_parts(const ResidencySummary& residency, const Pass& pass) const;
  // Answers and prompts, or parts of these, in one pass: weights are read once and kernels start once.
  [[nodiscard]] Parts mixed_parts(const ResidencySummary& answers, const Pass& pass, const ResidencySummary& prompts,
                                  const Pass& prompt_pass) const;
  // Products of so many tokens of answers and of prompts together.
  [[nodiscard]] LinearWork mixed_work(std::uint64_t answers, const Pass& pass, std::uint64_t computed,
                                      const Pass& prompt_pass) const;
  // The target's parts, made for seconds that its host may work ahead, and those of the drafts before them.
  template <class Target>
  [[nodiscard]] Parts with_drafts(const ResidencySummary& residency, const Pass& pass, const Target& target) const;
  // After prompts that the model repeats, of which it computes parts: a part [from, to) stands for passes behind
  // from + to tokens, which over the parts of a prompt is as many as it has.
  void add_repetition(Parts& parts, const ResidencySummary& prompts, const Pass& pass) const;
  // Behind the target's parts.
  void add_draft_prompts(Parts& parts, const ResidencySummary& prompts, const Pass& pass) const;
  // Arithmetic of a prompt's attention where blocks of queries share the rows that they read, by the shorter of both
  // ways to multiply latent rows.
  [[nodiscard]] double least_attention(const StepTraffic& prompts) const {
    return std::min(1.0, attention.heads_beside_latent()) * prompts[KernelFamily::kAttention].value;
  }
  // Bytes on this device of the rows before the parts of so many prompts.
  [[nodiscard]] double earlier_bytes(const ResidencySummary& prompts, std::uint64_t sequences) const {
    return static_cast<double>(sequences) * attention.earlier_bytes(prompts);
  }
  // Probabilities, written by attention and read by the policy.
  [[nodiscard]] double observed_bytes(const ResidencySummary& residency, std::uint64_t queries) const {
    return residency.observes_steps ? 2 * attention.probability_bytes(residency, queries) : 0;
  }
  [[nodiscard]] StepTraffic prompt_traffic(const ResidencySummary& residency, std::uint64_t sequences) const {
    const std::uint64_t tokens = sequences * residency.computed_tokens();
    return step_traffic(
        placed.shape, placed.types(),
        prompt_work(sequences, tokens, residency.storage_heads, sequences * residency.computed_prefill()));
  }
  [[nodiscard]] Parts nothing() const {
    Parts parts;
    parts.together = rates.together;
    return parts;
  }
  // Bytes of caches that a step reads on this device.
  [[nodiscard]] double kv_read(const ResidencySummary& residency, const StepTraffic& traffic) const {
    return placed.kv_share_of(residency, residency.decode) * static_cast<double>(traffic.bytes[Cause::kKvRead]);
  }
  [[nodiscard]] KernelRates::Reading reading(const LinearWork& work, double kv_bytes) const {
    const double weights = attention_only(placed.shape) ? 0 : placed.share * work.bytes;
    return rates.of_working_set(weights + kv_bytes);
  }
  [[nodiscard]] StepTraffic decode_traffic(const ResidencySummary& residency, std::uint64_t sequences,
                                           StepTokens tokens) const {
    return mean_decode_traffic(placed.shape, placed.types(), residency, sequences, tokens);
  }

  Placement placed;
  KernelRates rates;
  LinearCosts linear;
  AttentionCosts attention;
  PolicyCosts policy;
  LinkCosts links;
  HostCosts host;
  DatasheetLimit limit;
  std::unique_ptr<const Components> draft;  // of what drafts tokens; nothing: drafts are free, or there are none
  MemoryModel memory;
};

}  // namespace kvroof
