// The answer of `kvroof replay` as a picture: what reading less costs, and what it buys.
#pragma once

#include <string>

#include "apps/replay/replay_output.hpp"

namespace kvroof {

// Recall against the KV that a step reads, the output error likewise where it was measured, and for each model, device
// and batch the recall against tokens a second with their 80 % intervals. A policy is a line, each budget a ring;
// oracle and random lie behind them.
std::string replay_svg(const ReplayAnswer& answer);

}  // namespace kvroof
