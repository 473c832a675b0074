// Where a point's recall lies between the bounds of the same trace: random below, oracle above.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/replay/replay.hpp"

namespace kvroof {

inline constexpr std::array kBoundNames = {"random", "oracle"};
PolicySpec bound_spec(std::string_view name, const Budget& budget);

// The budget at which a point meets the bounds: its own. Of a policy without one, as many tokens as a head reads in the
// mean beside the query's own; nothing where that is all of them, or where nothing was decoded.
std::optional<Budget> bound_budget(const PointResult& point);

// `random` and `oracle` at each budget at which these points meet them, but for those that are among the points.
std::vector<PolicySpec> missing_bounds(std::span<const PointResult> points);

// Mean recalls of the two bounds at one budget.
struct BoundRecalls {
  Budget budget;
  double random = 0, oracle = 0;

  // (recall − random) / (oracle − random): 0 is no better than random, 1 is the oracle; a point may lie below 0. Of
  // policies that hold more than their budget it may lie above 1.
  [[nodiscard]] double position(double recall) const { return (recall - random) / (oracle - random); }
};

// The bounds of a point among `all`: `random` (without parameters) and `oracle` at its bound_budget(). Nothing where
// either is missing or where the two do not differ.
std::optional<BoundRecalls> bounds_of(const PointResult& point, std::span<const PointResult> all);

}  // namespace kvroof
