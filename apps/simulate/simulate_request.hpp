// What `kvroof simulate` is asked: requests, servers and goals.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/prediction/workload.hpp"
#include "sim/serving/disaggregated.hpp"
#include "sim/serving/simulate.hpp"

namespace kvroof {

inline constexpr std::uint32_t kMostReplicas = 4096;  // servers that may be asked for, and are looked for

// Of all servers, those that compute prompts alone (--prefill-replicas and what belongs to it).
struct PrefillRequest {
  std::vector<std::uint32_t> replicas = {0};  // a row each; 0: every server computes prompts and answers
  bool best = false;                          // a row for 0, and one for the number that serves best
  std::optional<Device> device;               // nothing: as the others
  std::optional<std::uint32_t> tensor_parallel;
  std::optional<double> transfer_gbs, transfer_ms;
};

// A prefix cache that is simulated block by block.
struct PrefixCacheRequest {
  std::optional<double> most_gib;  // of each device, for blocks that no running sequence holds; nothing: what is free
  bool loses_nothing = false;
  const PrefixEviction* eviction = nullptr;  // in which order the device gives blocks up
  bool copies = false;             // of whole prompts, beside what policies keep of them
  double host_gib = 0;             // of the host's memory, for each device
  bool routes = false;             // requests go where most of their prompt is
};

struct SimulateRequest {
  WorkloadRequest workload;  // its prompt and output are the longest of all requests
  std::vector<Device> devices;
  std::vector<Request> requests;  // at the file's own rate, or at that of --rate; at one a second for --rate max
  std::size_t sent = 0;           // so many of them come
  bool drawn = false;             // and not a file's: --count says how many
  bool chosen_count = false;      // --count was given: that many, though servers be still filling when the last comes
  std::string requests_text;      // what they are: "1000 drawn requests of 2048 + 512 tokens"
  std::size_t without_answer = 0;  // requests of the file that were left out
  std::uint32_t turns = 1;         // of a conversation; drawn requests alone have several
  double mean_turns = 1;           // that conversations have, where the model has no positions for all
  std::uint32_t message = 1;       // mean tokens that each turn after the first adds
  double thoughts = 0;             // of an answer, the share that later prompts leave out
  std::size_t turns_left_out = 0;  // for which the model has no positions
  PrefixTree prefixes;             // what prompts share, where the file or --shared-prefix says so
  std::optional<PrefixCacheRequest> prefix_cache;
  bool no_prefix_cache = false;    // --prefix-cache none: it is said what prompts share, and nothing finds it
  std::size_t shorter_than_shared = 0;  // drawn prompts that have no room for --shared-prefix and a token of their own
  double cached_share = 0;         // of all tokens of prompts, that a prefix cache has; that loses nothing, if it may
  double asked_rate = 0;           // of --rate, requests a second; 0: not given, or max
  bool lasts = false;              // requests go on coming at a rate (--rate), not as a file's own times have it
  bool highest_rate = false;       // --rate max: the highest that meets the goals is looked for
  std::uint32_t clients = 0;       // of a closed loop; 0: requests come by themselves
  bool most_clients = false;       // so many as meet the goals are looked for, up to `clients`
  std::vector<double> pauses;      // of clients, or before turns (ServingSetup); empty: they ask at once
  double pause = 0;                // their mean, seconds
  std::uint32_t replicas = 1;      // all servers; 0: as few as meet the goals
  PrefillRequest prefill;
  std::optional<double> ttft_ms, tpot_ms;  // goals of each request
  double attainment = 0.9;                 // the share of requests that must meet them
  bool by_price = false;   // what ranks rows: what they serve for the money, not on each device
  bool ranks_rows = false; // --by was given
  std::uint32_t top = 10;  // of ranked rows, those that all tables show
  bool cold = false;       // the servers have just started
  std::uint64_t seed = 0;  // of what is drawn

  [[nodiscard]] bool has_goals() const { return ttft_ms || tpot_ms; }
  // Whether rows stand in the order of what is best: where something is looked for, or it was asked for.
  [[nodiscard]] bool ranks() const { return ranks_rows || highest_rate || most_clients || replicas == 0; }
  [[nodiscard]] bool in_conversations() const { return turns > 1; }
  // Of each client's requests, on average: until hardly any are first ones, after pauses of whatever length.
  [[nodiscard]] std::size_t warm_up_each() const { return in_conversations() ? std::max(turns, 5U) : 1; }
  // Of so many clients: requests that they send, and how many of them, at the start, times and shares are not of.
  [[nodiscard]] std::size_t sent_by(std::uint32_t clients) const;
  [[nodiscard]] std::size_t warm_up_of(std::uint32_t clients) const;
  [[nodiscard]] SchedulerLimits limits_on(const Device& device) const;
  // Between the servers of prompts and those of answers, on a device.
  [[nodiscard]] const Device& prefill_device(const Device& device) const {
    return prefill.device ? *prefill.device : device;
  }
  [[nodiscard]] TransferLink link_on(const Device& device) const;
};

void describe_simulate(boost::program_options::options_description_easy_init add);
// Throws Error (usage). Draws `count` requests where --count says nothing.
SimulateRequest simulate_request(const Arguments& arguments, std::uint32_t count = 1000);

}  // namespace kvroof
