// Open against closed loop: how far the sets that replay finds on a full-attention trace drift from those of a run
// under the policy.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/thread_pool.hpp"
#include "sim/replay/replay.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// In the open loop (replay) hidden states are those of full attention; in the closed loop (the engine under the policy)
// they follow what was evicted, and so do the tokens that are generated.
struct OpenClosedReport {
  std::string policy;  // of the closed loop
  std::string rounding_note;  // a sentence on what else the runs differ in; empty: nothing
  std::uint32_t layers = 0;
  std::uint32_t steps = 0;  // decoded tokens that both runs have, of the longest sequence
  // The first decoded token (from 1) that differs in any sequence; nothing when none does.
  std::optional<std::uint32_t> first_differing_token;
  bool equal_after_prompt = true;            // all sets of step 0
  bool equal_layer0_until_differing = true;  // sets of layer 0 before that token passed through the model
  // [step 0 … steps][layer]: |open ∩ closed| / max(|open|, |closed|), mean over sequences and storage heads. Where a
  // policy reads a part of what it keeps it is of what is read, mean over query heads; 1 after the prompt, with nothing
  // read yet.
  std::vector<double> overlap;
  std::vector<double> lowest;  // [layer]: of all steps of all sequences, each a mean over its heads alone

  [[nodiscard]] double at(std::uint32_t step, std::uint32_t layer) const {
    return overlap[std::size_t{step} * layers + layer];
  }
  [[nodiscard]] double mean_of_layer(std::uint32_t layer) const;  // over all steps
};

// `open` was recorded under full attention, `closed` under a policy, on the same model and prompts. Throws
// Error (usage) otherwise, also where weights are others by what they make of the first prompt in layer 0.
// Of `model` what policies ask of the model is taken: output_projection and token_kinds; of `known` the policy of
// `closed` with what its files say, where it is among them.
OpenClosedReport compare_open_closed(const TraceReader& open, const TraceReader& closed, ThreadPool& pool,
                                     const ReplayOptions& model = {}, std::span<const PolicySpec> known = {});

}  // namespace kvroof
