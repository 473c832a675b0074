// The answer of `kvroof plan`: how many sequences a deployment serves within the goals, and the best of several.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/conformal.hpp"
#include "apps/cli/command.hpp"
#include "apps/prediction/speculation.hpp"
#include "apps/prediction/workload.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

// What goals are of, in seconds.
struct Times {
  Estimate first_token, token;
};

struct Goals {
  std::optional<std::uint64_t> batch;  // nothing: the largest
  std::optional<double> tpot_ms, ttft_ms;
  bool under_load = false;  // times are of the batch as clients that ask again; else of a step and a prompt alone
  std::optional<double> idle_tpot_ms = {};  // of --tpot-ms where answers have no further token that it could be of

  [[nodiscard]] bool met(const Times& times, double Estimate::* end) const {
    return first_token_in_time(times.first_token.*end) && step_in_time(times.token.*end);
  }
  // Whether a mean token and a first one, in seconds, are in time.
  [[nodiscard]] bool step_in_time(double seconds) const { return !tpot_ms || seconds * 1e3 <= *tpot_ms; }
  [[nodiscard]] bool first_token_in_time(double seconds) const { return !ttft_ms || seconds * 1e3 <= *ttft_ms; }
};

// --batch, --tpot-ms, --ttft-ms and --under-load, of plan and of compare.
void describe_goals(boost::program_options::options_description_easy_init add);
// Of answers of so many tokens. Throws Error (usage).
Goals goals_of(const Arguments& arguments, std::uint32_t output);
// What plan and compare say of a goal that holds nothing back.
std::vector<std::string> goal_notes(const Goals& goals);

// What a deployment serves within the goals.
struct Served {
  std::uint64_t batch = 0;    // the one of the goals, else the largest; 0: it does not fit or misses a goal
  std::uint64_t largest = 0;
  Estimate interval;          // of the largest, from those of memory and time
  std::string limited_by;     // what allows no more than the largest: capacity, engine, tpot, ttft
  // In seconds: of one prompt by itself; where the goals are under load, under that of the batch, or of the largest if
  // that is fewer, or nothing: not one fits.
  std::optional<Estimate> first_token;
  std::optional<DraftGain> drafts;  // of the batch; nothing: there is none, or no drafts
};
Served largest_served(const WorkloadRequest& request, const Deployment& deployment, const Device& device,
                      const Workload& workload, const Goals& goals);

// The batch as clients that each ask again once they are answered, with lengths around those of the request: steps
// share their time with the prompts of others. Times in seconds.
struct Load {
  Estimate first_token, token, tokens_per_s;
};

struct Plan {
  const Workload* workload = nullptr;  // the policy with its cache
  Deployment deployment = TrafficTypes{};
  std::uint64_t batch = 0;
  std::uint64_t largest_in_memory = 0;  // whatever the time
  std::uint64_t largest = 0;            // that also meets the goals
  Estimate largest_interval;            // of it, from those of memory and time
  // What allows no larger batch: capacity, engine, tpot, ttft; of a batch that was given, the goal that it misses.
  std::string limited_by;
  Prediction prediction;
  Estimate first_token;              // of one prompt by itself
  std::optional<Load> load;          // of the batch, or of one client where it is none; nothing: it does not fit
  bool under_load = false;           // what the goals are of
  // Of a token in the steps of a sequence: what 99 % of them do not exceed, and the slowest.
  Estimate p99_step, worst_step;
  IntervalFactors step_factors, first_token_factors, memory_factors;
  MemoryLedger ledger;
  std::uint32_t longest_prompt = 0;  // that fits with this batch and meets the goals; 0: none
  bool in_time = true;               // its token and its first token
  std::optional<DraftGain> drafts;   // beside the same without them
  // Without them: the largest batch, and the one that is served, 0 where none is, with its tokens a second.
  std::uint64_t largest_without_drafts = 0, batch_without_drafts = 0;
  double tokens_per_s_without_drafts = 0;

  [[nodiscard]] bool met() const { return batch > 0 && prediction.fits && in_time; }
  [[nodiscard]] bool holds_one() const { return largest_in_memory > 0; }
  [[nodiscard]] std::uint32_t devices() const { return deployment.devices(); }
  // What the goals are of: under load, or a step and a prompt by themselves.
  [[nodiscard]] Load told() const {
    if (under_load && load) return *load;
    return {first_token, prediction.token(), prediction.tokens_per_s};
  }
  [[nodiscard]] bool has_told() const { return !under_load || load; }
  [[nodiscard]] double tokens_per_s_a_device() const { return told().tokens_per_s.value / devices(); }
};

Plan make_plan(const WorkloadRequest& request, const Deployment& deployment, const Device& device,
               const Workload& workload, const Goals& goals);

// A plan for each workload on each deployment of the request, in their order.
std::vector<Plan> search_plans(const WorkloadRequest& request, const Device& device,
                               const std::vector<Workload>& workloads, const Goals& goals);
// The one of those that meet the goals that makes most tokens a second on each device, fewer devices first; the first
// where none does.
std::size_t best_plan(const std::vector<Plan>& plans);

// What would meet the goals where a plan does not: the fewest devices with its types, the widest type of the cache or
// of the weights on its devices.
struct Remedy {
  std::string change;  // "--tp 2"
  std::uint64_t batch = 0;
};
std::vector<Remedy> remedies(const WorkloadRequest& request, const Plan& plan, const Device& device,
                             const Goals& goals);

}  // namespace kvroof
