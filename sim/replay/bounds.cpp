#include "sim/replay/bounds.hpp"

#include <algorithm>
#include <string_view>

namespace kvroof {
namespace {

// One budget written in two ways (0.5, 50%) is one.
bool same_budget(const Budget& a, const Budget& b) { return a.kind == b.kind && a.value == b.value; }

std::optional<double> recall_of_bound(std::string_view name, const Budget& budget, std::span<const PointResult> all) {
  const auto bound = std::find_if(all.begin(), all.end(), [&](const PointResult& p) {
    return p.spec.name == name && p.spec.params.empty() && same_budget(p.spec.budget, budget);
  });
  if (bound == all.end() || !bound->quality) return std::nullopt;
  return bound->quality->recall_mean;
}

}  // namespace

std::optional<double> position_between_bounds(const PointResult& point, std::span<const PointResult> all) {
  if (!point.quality || point.spec.budget.kind == Budget::Kind::kUnlimited) return std::nullopt;
  const std::optional<double> low = recall_of_bound("random", point.spec.budget, all);
  const std::optional<double> high = recall_of_bound("oracle", point.spec.budget, all);
  if (!low || !high || *high <= *low) return std::nullopt;
  return (point.quality->recall_mean - *low) / (*high - *low);
}

}  // namespace kvroof
