// Where a point's recall lies between the bounds of the same replay: random below, oracle above.
#pragma once

#include <optional>
#include <span>

#include "sim/replay/replay.hpp"

namespace kvroof {

// (recall − random) / (oracle − random), of mean recalls: 0 is no better than random, 1 is the oracle; a point may lie
// below 0. The bounds are the points `random` (without parameters) and `oracle` of `all` with the budget of `point`.
// Nothing where either is missing, without a budget or a recall, or where the bounds do not differ.
std::optional<double> position_between_bounds(const PointResult& point, std::span<const PointResult> all);

}  // namespace kvroof
