// Speculative decoding on the command line: --speculate and --draft of plan, compare and simulate, what drafts gain,
// and how that is said.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/command.hpp"
#include "sim/cost/cost.hpp"

namespace kvroof {

void describe_speculation(boost::program_options::options_description_easy_init add);
// An item for each of --speculate; nothing in it: without drafts. Throws Error (usage).
std::vector<std::optional<Speculation>> speculations_of(const Arguments& arguments, const ModelShape& target);

// "4 tokens of mtp".
std::string drafts_text(const Speculation& speculation);
// ", 4 tokens of mtp at 0.8" (the share accepted), to append to a deployment's name; empty: without drafts.
std::string with_drafts_text(const Deployment& deployment);
// Whether any of them drafts; the same where it is, and "none".
bool drafts_anything(const std::vector<Deployment>& deployments);
std::string drafts_or_none(const Deployment& deployment);
// The deployment without drafts.
Deployment without_drafts(Deployment deployment);

// What drafts change for a batch, of decode steps alone.
struct DraftGain {
  Speculation speculation;
  Estimate step, drafting;         // seconds of a step, and of its drafts
  Estimate token, token_without;   // seconds a token, with them and without
  double times = 1;                // as fast
  double times_under_full = 1;     // with full attention and as many sequences, whether they fit or not
  // Sequences at once with which tokens are faster than without, from and to, of those up to `most`. To within 1 %.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> pays = {};
  std::uint64_t most = 0;
};
// `most`: the largest batch that is looked at; at least `batch`.
DraftGain draft_gain(const CostModel& with, const CostModel& without, const ResidencySummary& mean, std::uint64_t batch,
                     std::uint64_t most);

// "4 tokens of mtp drafted a step, each accepted with 80 %, make 3.36 tokens a step: 2.5 ms a token in place of 4.4,
// 1.76 times as fast; they pay up to a batch of 96".
// `evicts`: what full attention gains is said beside that; `under_load`: that it is of decode steps alone.
std::string gain_text(const DraftGain& gain, bool evicts, bool under_load);
// Of a row; its keys without values for nothing.
nlohmann::ordered_json gain_json(const std::optional<DraftGain>& drafts);

// What a reader of the numbers must know, a sentence each; nothing without drafts.
std::vector<std::string> speculation_notes(const std::vector<Deployment>& deployments);

}  // namespace kvroof
