#include "sim/traffic/accounting.hpp"

#include <algorithm>

namespace kvroof {
namespace {

void add_prompts(Accounting& a, const ModelShape& shape, TrafficTypes types, const ResidencySummary& summary,
                 double sequences) {
  const LayerCounts& prompt = summary.prefill;
  const StepTraffic rows = step_traffic(shape, types, {0, 0, summary.storage_heads, prompt});
  a.prompt_kv_moved = nearest(sequences * static_cast<double>(rows.bytes[Cause::kCompaction]));
  a.prompt_policy_flops = sequences * prompt.policy_flops;
  a.fused_prompt = !summary.needs_probabilities;
  if (a.fused_prompt) return;
  a.second_pass_flops = sequences * query_rows(shape, prompt, summary.storage_heads) * 2 * shape.head_dim;
  a.probability_bytes = nearest(4 * sequences * std::max(shape.heads, shape.other.heads) * summary.prompt_pairs());
}

}  // namespace

Accounting account(const ModelShape& shape, TrafficTypes types, const ResidencySummary& summary,
                   std::uint64_t sequences, StepTokens tokens) {
  const auto count = static_cast<double>(sequences);
  const StepTraffic step = mean_decode_traffic(shape, types, summary, sequences, tokens);
  const auto mean = [&](std::uint64_t sum) {
    return count * static_cast<double>(sum) / static_cast<double>(summary.decode_steps);
  };
  Accounting a;
  const bool alike = shape.other.layers.empty() && shape.sharing_layers == 0;
  const double of_token = alike ? static_cast<double>(summary.layers)
                                : static_cast<double>(rows_of_token(shape)) / shape.kv_heads;
  a.kept_tokens = summary.resident_rows() / of_token / summary.storage_heads;
  a.kv_resident = nearest(count * summary.resident_bytes(shape, types.kv));
  const KvBytes allocated = summary.allocated_bytes(shape, types.kv, false);
  a.kv_allocated = sequences * allocated.total();
  a.kv_allocated_scales = sequences * allocated.scales;
  a.kv_read = step.bytes[Cause::kKvRead];
  a.kv_read_scales = step.kv_read.scales;
  a.kv_read_residual = step.kv_read.residual;
  a.kv_written = step.bytes[Cause::kKvWrite];
  a.kv_moved = step.bytes[Cause::kCompaction];
  a.kv_allocated_paged = sequences * summary.allocated_bytes(shape, types.kv, true).total();
  a.page_metadata = sequences * types.kv.scored_bytes(summary.peak_page_metadata);
  a.policy_state = sequences * summary.peak_rows * summary.state_bytes_per_row + a.page_metadata;
  a.state_read = nearest(mean(summary.decode.state_read));
  a.state_written = nearest(mean(summary.decode.state_written));
  a.scored = nearest(mean(types.kv.scored_bytes(summary.decode.scored)));
  a.attention_flops = step[KernelFamily::kAttention].value;
  a.policy_flops = count * tokens.passed / static_cast<double>(summary.decode_steps) * summary.decode.policy_flops;
  add_prompts(a, shape, types, summary, count);
  return a;
}

}  // namespace kvroof
