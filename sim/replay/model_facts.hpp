// What policies of a replay ask of the recorded model, with the sentences where it is not to be had.
#pragma once

#include <span>
#include <vector>

#include "sim/replay/replay.hpp"

namespace kvroof {

// Throws Error (usage) for a policy that asks what no replay serves.
void require_served(std::span<const PolicySpec> points);
// Both throw Error (usage) where the options cannot tell, or what they tell does not fit the trace.
RowsView output_projection_of(const ReplayOptions& options, const TraceLayer& shape, LayerId layer);
// Of the tokens of a sequence, by position.
std::vector<TokenKind> token_kinds_of(const ReplayOptions& options, const TraceSequence& sequence);

}  // namespace kvroof
