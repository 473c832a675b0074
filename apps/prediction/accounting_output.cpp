#include "apps/prediction/accounting_output.hpp"

#include <fmt/format.h>

#include "apps/cli/command.hpp"
#include "apps/cli/table.hpp"
#include "apps/prediction/estimate_text.hpp"
#include "sim/core/bytes_text.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

Json flops_json(const PolicyFlops& flops) {
  return {{"scoring_flops", flops.scoring}, {"noise_flops", flops.noise}, {"selection_flops", flops.selection}};
}

std::string bytes(std::uint64_t n) { return n == 0 ? "–" : bytes_text(n); }
std::string prompt(const Accounting& a) {
  return a.fused_prompt ? "fused" : fmt::format("+ {} Gflop", number_text(a.second_pass_flops / 1e9));
}
std::string mega(double flops) { return flops == 0 ? "–" : number_text(flops / 1e6); }

}  // namespace

Json accounting_json(const Accounting& a) {
  Json policy = {{"state_bytes", a.policy_state},
                 {"page_metadata_bytes", a.page_metadata},
                 {"state_read_bytes", a.state_read},
                 {"state_written_bytes", a.state_written},
                 {"scored_bytes", a.scored}};
  policy.update(flops_json(a.policy_flops));
  Json prompt = {{"fused_attention", a.fused_prompt},
                 {"second_pass_flops", a.second_pass_flops},
                 {"probability_bytes", a.probability_bytes},
                 {"kv_moved_bytes", a.prompt_kv_moved}};
  prompt.update(flops_json(a.prompt_policy_flops));
  return {{"kv",
           {{"resident_bytes", a.kv_resident},
            {"allocated_bytes", a.kv_allocated},
            {"allocated_scale_bytes", a.kv_allocated_scales},
            {"allocated_in_pages_bytes", a.kv_allocated_paged},
            {"read_bytes", a.kv_read},
            {"read_scale_bytes", a.kv_read_scales},
            {"read_residual_bytes", a.kv_read_residual},
            {"written_bytes", a.kv_written},
            {"moved_bytes", a.kv_moved}}},
          {"attention_flops", a.attention_flops},
          {"policy", std::move(policy)},
          {"prompt", std::move(prompt)}};
}

std::string accounting_table(std::span<const AccountingLine> lines) {
  Table table;
  table.columns = {{"policy", "policy", false}, {"budget", "budget"},
                   {"KV held", "held"},         {"KV allocated", "allocated"},
                   {"in pages", "in_pages"},
                   {"read", "read"},            {"written", "written"},
                   {"moved", "moved"},          {"policy state", "state"},
                   {"state traffic", "scores"}, {"scoring Mflop", "scoring"},
                   {"noise Mflop", "noise"},    {"choice Mflop", "choice"},
                   {"prompt attention", "prompt", false}};
  for (const AccountingLine& line : lines) {
    const Accounting& a = line.accounting;
    table.rows.push_back({line.policy, line.budget, bytes(a.kv_resident), bytes(a.kv_allocated),
                          bytes(a.kv_allocated_paged), bytes(a.kv_read), bytes(a.kv_written), bytes(a.kv_moved),
                          bytes(a.policy_state), bytes(a.state_read + a.state_written + a.scored),
                          mega(a.policy_flops.scoring), mega(a.policy_flops.noise), mega(a.policy_flops.selection),
                          prompt(a)});
  }
  return format_table(table);
}

}  // namespace kvroof
