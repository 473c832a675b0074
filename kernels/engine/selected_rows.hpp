// Policies that read a part of what they keep: what a row reads, and what the policy is then shown of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/engine/ops.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof {

// Kept by a back end, so that a row is selected without allocating.
struct SelectionScratch {
  std::vector<SlotId> slots;
  std::vector<std::uint8_t> reads;  // [group, slots]: 1 where the query head reads the slot
};

// What the policy lets the query at `query` read, whose rows of q [group, k_width] are given; it replaces what
// `selected` holds. `source` has the rows of k.
void select_rows(LayerPolicy& policy, HeadId head, TokenPos query, std::span<const float> q,
                 const HeadRowsSource& source, SelectionScratch& scratch, SelectedRows& selected);

// Shows a row of which a part was read to a policy that observes it, over every slot. `logits` [group, rows] are those
// of call.rows(), −∞ where the query head does not read the row, and so they are for all other slots. Weights, where
// the policy needs them, are of the exact attention: then all logits are computed again, and the keys that the row did
// not read count as read by the policy. Safe for calls of different heads at once.
void show_selected(const AttendCall& call, const AttentionRule& rule, std::span<const float> logits);

}  // namespace kvroof
