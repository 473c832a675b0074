// The options of `kvroof simulate` that say what prompts share and where it is kept.
#pragma once

#include <optional>

#include "apps/simulate/simulate_request.hpp"

namespace kvroof {

void describe_prefixes(boost::program_options::options_description_easy_init add);
// Sets what a prefix cache has of each prompt, or the cache that finds it; the requests are there already. Throws Error
// (usage).
void set_prefixes(const Arguments& arguments, SimulateRequest& request);

// The prefix cache of a server, or nothing where there is none: none was asked for, or the policy evicts from prompts,
// the longest of which is `longest`, and no copies of these are kept. Points into the request.
std::optional<PrefixCacheSetup> prefix_setup(const SimulateRequest& request, const CostModel& cost,
                                             const Device& device, const PolicySpec& policy,
                                             const ResidencySummary& longest);

}  // namespace kvroof
