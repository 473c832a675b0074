// What a replay says of each query head of each layer: for analyses of policies.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "analysis/analysis.hpp"
#include "sim/replay/replay.hpp"

namespace kvroof {

// Recall and output error of all decode steps of one query head: [points][steps].
using HeadQualities = std::vector<std::vector<HeadQuality>>;

// Replays the points and calls visit(layer, head, values) for each query head of each layer of each sequence that
// decoded a token, layers outside the options' left out. One layer is in memory at a time.
void for_each_head_quality(
    const ReplayedTrace& replayed, std::span<const PolicySpec> points, MeasureOptions measure,
    const std::function<void(std::uint32_t layer, std::uint32_t head, const HeadQualities& values)>& visit);

}  // namespace kvroof
