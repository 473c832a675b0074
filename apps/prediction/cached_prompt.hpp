// What a prefix cache has of each prompt, as a share that is given.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/prediction/workload.hpp"

namespace kvroof {

// --cached-prompt, of plan and of compare.
void describe_cached_prompt(boost::program_options::options_description_easy_init add);
// Sets the share. Throws Error (usage).
void set_cached_prompt(const Arguments& arguments, WorkloadRequest& request);

// Tokens of a prompt that a cache has which has that share of it: never the last, whose logits begin the answer.
std::uint32_t cached_tokens(double share, std::uint32_t prompt);
// Whether other prompts find what the policy leaves of a prompt of such a sequence.
bool finds_prefixes(const PolicySpec& policy, const ResidencySummary& sequence);

// Lengths of a request as answers state them: 4096 (3686 of them cached) + 1024 tokens a sequence.
std::string lengths_text(const WorkloadRequest& request, std::uint32_t cached);
// Tokens of a prompt that a cache has under the policy that leaves it most.
std::uint32_t most_cached(const std::vector<const Workload*>& workloads);

// What is said of policies that evict from prompts, so that a cache has nothing of these.
std::string lost_prefixes_note(const std::vector<std::string>& evicting);
// What is said of models with states wherever they find prefixes, for which these are not priced; nothing of others.
std::vector<std::string> kept_states_notes(const ModelShape& model);
// What is lost, and before it what is said of prompts of which a cache has so large a share under any other policy, if
// there is one (`found`); nothing where there is no share.
std::vector<std::string> cached_prompt_notes(const ModelShape& model, double share, bool found,
                                             const std::vector<std::string>& evicting);
// Of a request, under those policies.
std::vector<std::string> cached_prompt_notes(const WorkloadRequest& request,
                                             const std::vector<const Workload*>& workloads);

}  // namespace kvroof
