#include "apps/simulate/simulate_fit.hpp"

#include <algorithm>

namespace kvroof {
namespace {

bool fits(std::span<const CostModel* const> servers, const LengthProfile& profile) {
  return std::ranges::all_of(servers, [&](const CostModel* server) {
    const DeploymentCosts costs(*server, std::span(&profile, 1), {});
    return costs.cache_bytes({profile.mean.prompt, 1}) <= costs.cache_capacity();
  });
}

// The profiles up to the longest prompt that fits, which has one of its own.
std::vector<LengthProfile> fitting_profiles(const SimulateRequest& request, const Workload& workload,
                                            std::span<const LengthProfile> all,
                                            std::span<const CostModel* const> servers) {
  std::vector<std::uint32_t> prompts;
  for (const Request& r : request.requests) prompts.push_back(r.prompt);
  std::ranges::sort(prompts);
  const auto fitting = std::ranges::partition_point(prompts, [&](std::uint32_t prompt) {
    return fits(servers, profile_of_length(request, workload, prompt));
  });
  if (fitting == prompts.begin()) return {};
  const std::uint32_t longest = *std::prev(fitting);
  std::vector<LengthProfile> profiles;
  for (const LengthProfile& profile : all) {
    if (profile.mean.prompt < longest) profiles.push_back(profile);
  }
  profiles.push_back(profile_of_length(request, workload, longest));
  return profiles;
}

}  // namespace

LengthProfile profile_of_length(const SimulateRequest& request, const Workload& workload, std::uint32_t prompt) {
  const std::uint32_t output = request.workload.output;
  return length_profile(workload.with_lengths(prompt, output), workload.step_counts(prompt, output));
}

FittingRequests fitting_requests(const SimulateRequest& request, const Workload& workload,
                                 std::span<const LengthProfile> all, std::span<const CostModel* const> servers) {
  FittingRequests fitting;
  fitting.profiles = all;
  if (!fits(servers, all.back())) {
    fitting.own = fitting_profiles(request, workload, all, servers);
    fitting.profiles = fitting.own;
  }
  if (fitting.profiles.empty()) return fitting;
  const DeploymentCosts costs(*servers.front(), fitting.profiles, {});
  const std::uint32_t longest = fitting.profiles.back().mean.prompt;
  for (std::size_t i = 0; i < request.requests.size(); ++i) {
    const Request& r = request.requests[i];
    const bool alone = r.follows && (fitting.numbers.empty() || fitting.numbers.back() + 1 != i);
    if (alone || r.prompt > longest || costs.cache_bytes({r.prompt, r.output}) > costs.cache_capacity()) continue;
    fitting.requests.push_back(r);
    fitting.numbers.push_back(i);
  }
  if (fitting.requests.size() == request.requests.size()) fitting.numbers.clear();
  return fitting;
}

}  // namespace kvroof
