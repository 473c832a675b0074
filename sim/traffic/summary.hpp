// Residency summed once over layers and steps, so that a what-if point is cheap; and its projection on other models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/core/residency.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/traffic/traffic.hpp"

namespace kvroof {

// What more tokens of a prompt add to those of `before`; nothing where they make less of something, as of moved rows.
LayerCounts added_to(const LayerCounts& before, LayerCounts all);

// Sums of the residency of one sequence, or the mean of several under one policy.
struct ResidencySummary {
  std::uint32_t prompt = 0;  // tokens
  std::uint32_t steps = 0;   // decoded tokens; the mean rounded to nearest
  std::uint32_t layers = 0;
  std::uint32_t storage_heads = 0;
  std::uint64_t state_bytes_per_row = 0;
  bool needs_probabilities = false;
  bool observes_steps = false;
  std::uint32_t repeats = 0;            // tokens that the model repeats of the prompt at a time, before it evicts; or 0
  bool evicts = false;                  // the prompt does not stay whole
  LayerCounts prefill;                  // step 0, summed over layers, a sequence
  std::uint32_t cached = 0;             // first tokens of the prompt that a prefix cache has: fewer than `prompt`
  LayerCounts cached_prefill;           // what step 0 would be of a prompt of those alone
  LayerCounts decode;                   // summed over layers and decode_steps decode steps
  std::uint64_t decode_steps = 1;       // divides decode; at least 1
  std::uint32_t beams = 1;              // sequences of the batch that share a prompt and are put into order each step
  // Tokens of a sequence in a mean decode step, the new one included; 0: the middle of prompt and steps.
  double context = 0;
  double prompt_squares = 0;            // mean of the squares of the prompts' tokens; 0: that of `prompt`
  // Rows, over all layers, that must be allocated while decoding, a sequence; of several the mean over decode steps.
  std::uint64_t peak_rows = 0;
  AgedRows peak_aged;                   // the same by age, each part at its largest
  std::uint64_t peak_paged_rows = 0;    // likewise in whole pages of one head
  std::uint64_t peak_keyed = 0;         // of them, those with a key where only some have one (LayerCounts)
  std::uint64_t peak_page_metadata = 0;  // elements, likewise
  std::uint64_t layer_prompt_rows = 0;  // rows of the prompt in the layer that has most: the prefill transient

  [[nodiscard]] double mean_context() const {
    return context > 0 ? context : prompt + 0.5 * (std::max(steps, 1U) + 1);
  }
  // Of the prompt, what is computed: the tokens that are not cached, whose queries meet the keys of those that are.
  [[nodiscard]] std::uint32_t computed_tokens() const { return prompt - cached; }
  [[nodiscard]] LayerCounts computed_prefill() const { return added_to(cached_prefill, prefill); }
  // Pairs of a query and a row in one head of a prompt, as a matrix that is written out has them; mean.
  [[nodiscard]] double prompt_pairs() const {
    return prompt_squares > 0 ? prompt_squares : static_cast<double>(prompt) * prompt;
  }
  // Mean rows of one decode step of one sequence, over all layers.
  [[nodiscard]] double attended_rows() const { return mean(decode.attended); }
  [[nodiscard]] double resident_rows() const { return mean(decode.resident); }
  // Mean bytes that one sequence holds in a cache of type `kv`.
  [[nodiscard]] double resident_bytes(const ModelShape& shape, KvType kv) const {
    return mean(kvroof::resident_bytes(shape, kv, decode).total());
  }
  // What a sequence must have room for while decoding; `paged`: in whole pages of each head.
  [[nodiscard]] KvBytes allocated_bytes(const ModelShape& shape, KvType kv, bool paged) const {
    const std::uint64_t rows = paged ? peak_paged_rows : peak_rows;
    if (!kv.by_age()) return held_bytes(shape, kv, rows, peak_keyed);
    return aged_bytes(kv, shape.head_dim, stored_v_width(shape), peak_aged) + index_keys(shape, rows, peak_keyed);
  }

 private:
  [[nodiscard]] double mean(std::uint64_t sum) const {
    return static_cast<double>(sum) / static_cast<double>(decode_steps);
  }
};

// Without decoded tokens the step that would follow the prompt stands for decoding.
ResidencySummary summarise(const Residency& residency);

// The mean of sequences that share policy, layers and heads: of a prompt what the mean prompt is, of decoding what a
// sequence of a running batch is on average, so that each counts as often as it has decode steps. They are added up
// layer by layer, so that no residency need be held as a whole; as these are exact sums, the mean is rounded once, at
// the end.
class SummarySum {
 public:
  // Of one layer of a sequence, or of several.
  void add(const ResidencySummary& layers);
  // All layers of a sequence were added.
  void end_sequence(std::uint32_t prompt, std::uint32_t steps, std::uint32_t layers);
  [[nodiscard]] ResidencySummary mean() const;  // of at least one sequence

 private:
  ResidencySummary sum_;       // of the prompts
  ResidencySummary sequence_;  // the decode steps of the sequence at hand, and its peaks
  ResidencySummary running_;   // the same of all, peaks times decode steps
  std::uint64_t prompt_ = 0, steps_ = 0, decode_steps_ = 0, sequences_ = 0;
  double prompt_squares_ = 0;
};

// Of a layer that has no rows of its own, what it reads of an earlier one's.
LayerCounts read_alone(const LayerCounts& counts);

// Full attention: every token stays, as far as a layer's window shows it. prompt ≥ 1.
ResidencySummary full_attention_summary(const ModelShape& shape, std::uint32_t prompt, std::uint32_t output);

// A pass in which the model repeats `tokens` tokens of its prompt behind all `behind` tokens of it, as KVzip has it do
// (arXiv:2505.23416): full attention over a prefix that is there, with the words that ask for the repetition, and a
// product of queries and keys once more for the weights that score those tokens.
ResidencySummary repetition_summary(const ModelShape& shape, std::uint32_t behind, std::uint32_t tokens);

// Tokens of a sequence that a decode step passes, and how many of them stay on average: more than one where a step
// verifies drafts. The queries of a step share what they read: rows, policy state and bounds of pages pass once. Rows
// are written and arithmetic is done for each of them, also where the token does not stay; what a policy moves, it
// moves for those that stay.
struct StepTokens {
  std::uint32_t passed = 1;
  double kept = 1;  // 1 to passed
};

// Mean decode step of `batch` sequences like the summary: bytes of all steps, divided once and rounded to nearest.
StepTraffic mean_decode_traffic(const ModelShape& shape, TrafficTypes types, const ResidencySummary& summary,
                                std::uint64_t batch, StepTokens tokens = {});

// Tokens after step `step` (0: the prompt) of a sequence of `prompt` prompt tokens, in a layer with that window (0:
// none); at least 1. Those that the window hides need not be left out.
using TokensAt = std::function<std::uint64_t(std::uint32_t prompt, std::uint32_t step, std::uint32_t window)>;

// What a head may hold: so many tokens, at most those there are, and beside them those that came since the policy last
// evicted, which it does every `interval` steps.
struct Room {
  Room() = default;
  template <class F>
    requires std::is_invocable_r_v<std::uint64_t, F, std::uint32_t, std::uint32_t>
  Room(F tokens)  // NOLINT: where windows change nothing beyond what they hide
      : target([tokens](std::uint32_t prompt, std::uint32_t step, std::uint32_t) { return tokens(prompt, step); }),
        recorded(target) {}
  Room(TokensAt of_target, TokensAt of_recording, std::uint32_t every)
      : target(std::move(of_target)), recorded(std::move(of_recording)), interval(every) {}

  [[nodiscard]] explicit operator bool() const { return target != nullptr; }
  [[nodiscard]] std::uint64_t since_eviction(std::uint32_t step) const { return step % interval; }

  TokensAt target, recorded;  // which may be of another budget
  std::uint32_t interval = 1;
};

struct ProjectedLengths {
  std::uint32_t prompt = 0;  // ≥ 1
  std::uint32_t output = 0;  // decoded tokens; above 0 needs a residency with decoded steps
};

// The residency that the policy would have on a model of shape `to` with another prompt and output length, estimated
// from that on shape `from`: a layer takes the counts of the layer at its relative depth, a storage head the mean of
// the heads there. A head fills the same share of its room as the recorded one at the same relative step, so a policy
// that fills its budget fills exactly the target's. Policy state and arithmetic follow the attended rows. `reads` are
// the tokens that a head reads in a decode step where that is less than it holds (quest); empty: the recorded share.
// docs/method.md has the formulas.
Residency project(const Residency& residency, const ModelShape& from, const ModelShape& to, ProjectedLengths lengths,
                  const Room& room, const Room& reads = {});
// The layer of the recording that layer `layer` of the projection takes its counts from.
std::uint32_t source_layer(std::uint32_t layer, const ModelShape& to, const Residency& from);
// One layer of it, as a residency of one layer; of a layer with compressed rows, of two: its window, which a policy
// leaves alone, and those rows, the tokens that the policy keeps or not.
Residency project_layer(const Residency& residency, const ModelShape& from, const ModelShape& to,
                        ProjectedLengths lengths, const Room& room, std::uint32_t layer, const Room& reads = {});

}  // namespace kvroof
