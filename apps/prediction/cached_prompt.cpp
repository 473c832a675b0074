#include "apps/prediction/cached_prompt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/cli/values.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {

void describe_cached_prompt(boost::program_options::options_description_easy_init add) {
  add("cached-prompt", boost::program_options::value<std::string>()->default_value("0"),
      "share of each prompt that a prefix cache has, so that it is not computed: 0.9 or 90%");
}

void set_cached_prompt(const Arguments& arguments, WorkloadRequest& request) {
  request.cached_share = share_value("cached-prompt", arguments.get<std::string>("cached-prompt"), 0, 1);
}

std::uint32_t cached_tokens(double share, std::uint32_t prompt) {
  constexpr double kRounding = 1e-9;  // 0.29 of 100 tokens are 29
  return std::min(static_cast<std::uint32_t>(share * prompt + kRounding), prompt - 1);
}

bool finds_prefixes(const PolicySpec& policy, const ResidencySummary& sequence) {
  return !sequence.evicts || policy_info(policy.name).traits(policy).evicts_whole_blocks;
}

std::string lengths_text(const WorkloadRequest& request, std::uint32_t cached) {
  const std::string of_these = cached > 0 ? fmt::format(" ({} of them cached)", cached) : "";
  return fmt::format("{}{} + {} tokens a sequence", request.prompt, of_these, request.output);
}

std::string lost_prefixes_note(const std::vector<std::string>& evicting) {
  return fmt::format(
      "{}: of a prompt that is evicted from, rows are missing that other prompts need, so prompts are computed whole",
      join(evicting));
}

std::uint32_t most_cached(const std::vector<const Workload*>& workloads) {
  std::uint32_t most = 0;
  for (const Workload* workload : workloads) most = std::max(most, workload->mean().cached);
  return most;
}

std::vector<std::string> kept_states_notes(const ModelShape& model) {
  if (model.state.layers == 0) return {};
  return {"a prefix is found with the states that layers without a cache had at its end, as if they were kept for "
          "nothing: an engine keeps them at some places and in its memory, and finds less"};
}

std::vector<std::string> cached_prompt_notes(const ModelShape& model, double share, bool found,
                                             const std::vector<std::string>& evicting) {
  if (!(share > 0)) return {};
  std::vector<std::string> notes;
  if (found) {
    notes.push_back(fmt::format("{:.0f} % of the prompts is in a prefix cache and not computed; each sequence still "
                                "counts its own copy of it in memory", 100 * share));
    for (std::string& note : kept_states_notes(model)) notes.push_back(std::move(note));
  }
  if (!evicting.empty()) notes.push_back(lost_prefixes_note(evicting));
  return notes;
}

std::vector<std::string> cached_prompt_notes(const WorkloadRequest& request,
                                             const std::vector<const Workload*>& workloads) {
  std::vector<std::string> evicting;
  for (const Workload* workload : workloads) {
    if (!finds_prefixes(workload->policy(), workload->mean())) add_new(evicting, workload->policy().name);
  }
  return cached_prompt_notes(request.model, request.cached_share, most_cached(workloads) > 0, evicting);
}

}  // namespace kvroof
