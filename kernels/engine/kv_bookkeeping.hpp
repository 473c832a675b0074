// What every back end does alike around LayerPolicy: contexts, capacities, packing, and showing rows to a policy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/engine/backend.hpp"
#include "kernels/engine/model.hpp"
#include "kernels/engine/ops.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof {

// Throws Error (usage) for policies that only a replay can follow, or that ask what no back end serves.
void check_runnable(const PolicySpec& policy);

// Tokens that a sequence can ever have: its prompt and what was asked for, within the model's context.
std::uint32_t most_tokens(const ModelShape& shape, std::uint32_t prompt, std::uint32_t requested_new_tokens);

// `kinds` are the sequence's (note_kinds()), and outlive the policy.
PolicyContext policy_context(const Model& model, LayerId layer, std::uint32_t sequence, std::uint32_t prompt,
                             std::uint32_t requested_new_tokens, std::uint64_t seed,
                             const std::vector<TokenKind>& kinds);

// Adds the kinds of the tokens that begin at position `first`, before a policy meets them; what a call that failed
// noted there goes. Nothing where the model has none.
void note_kinds(const Model& model, std::span<const std::int64_t> ids, std::uint32_t first,
                std::vector<TokenKind>& kinds);

// The largest that a back end has had in its caches so far. Within a prompt, which is noted often, the other sequences
// hold what they held when it began.
class KvPeaks {
 public:
  void note(const KvUsage& now) {
    resident_bytes_ = std::max(resident_bytes_, now.resident_bytes);
    bytes_ = std::max(bytes_, now.allocated_bytes);
  }
  void begin_prompt(const KvUsage& others) { others_ = others; }
  void note_prompt(KvUsage its_own) { note(its_own += others_); }
  void fill(KvUsage& usage) const {
    usage.peak_resident_bytes = resident_bytes_;
    usage.peak_bytes = bytes_;
  }

 private:
  std::uint64_t resident_bytes_ = 0, bytes_ = 0;
  KvUsage others_;
};

// Every survivor of a prompt leaves the buffer, where token i lies in slot i.
std::vector<SlotMove> packing_moves(std::span<const TokenPos> survivors);

// How many of a head's moves, from the first on, may be made side by side: none of them writes a slot that another one
// of them reads or writes. At least one.
std::size_t moves_at_once(std::span<const SlotMove> moves);

// Shows a row that was made elsewhere to the policy: logits [group, slots] of the query at `query` over the head's
// tokens, of which the first lies in slot `oldest`, the next in the one after it, and around. `sinks` are those of all
// query heads of the layer, or empty; `weights` is scratch.
void show_rows(LayerPolicy& policy, HeadId head, TokenPos query, std::span<float> logits, std::uint32_t oldest,
               std::span<const float> sinks, std::vector<float>& weights);

// Tells of the tokens that the policy's last row, at `position`, took from a head.
void record_evictions(Recorder& recorder, const LayerPolicy& policy, std::uint32_t sequence, LayerId layer, HeadId head,
                      TokenPos position);

// [rules, tokens]: 1 where the prompt of the token's sequence takes the second table of the rotary rule; empty where no
// rule has one.
std::vector<std::uint8_t> use_long_rotary(const ModelOptions& options, std::span<const std::uint32_t> prompts);

}  // namespace kvroof
