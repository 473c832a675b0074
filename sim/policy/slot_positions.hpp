// Attention in which tokens stand where they lie in the cache, not where they lay in the text (StreamingLLM).
#pragma once

#include <span>

#include "sim/attention/attention.hpp"
#include "sim/core/ids.hpp"
#include "sim/policy/head_tensors.hpp"

namespace kvroof {

// One query head over the tokens of one storage head.
struct SlotRow {
  LayerRotation rotation;                // that turned q and k
  std::span<const TokenPos> positions;   // [slots]; the query's own token is among them
  TokenPos query{};
  std::span<const float> q;              // [k_width], as attention consumes it
  RowsView keys;                         // as cached, turned by their tokens' own positions
  bool by_position = false;              // row i is that of token i; otherwise that of slot i
  LogitRule rule;
  AlibiBias alibi{};
};

// Logits of q and k at their own positions become those at their places: the oldest token held stands at 0, the next at
// 1, the query's own last (Xiao et al., ICLR 2024, section 3.2; its code caches k unturned and turns it at every step).
// A dot product of turned rows depends on their distance alone. So where there are as many places between a token and
// the query as positions, its logit stays; elsewhere q is turned back by what the distance shrinks and meets k as it
// is.
void relocate_logits(const SlotRow& row, std::span<float> logits);

}  // namespace kvroof
