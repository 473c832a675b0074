#include "sim/replay/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

namespace kvroof {
namespace {

// One budget written in two ways (0.5, 50%) is one.
bool same_budget(const Budget& a, const Budget& b) { return a.kind == b.kind && a.value == b.value; }

bool is_bound(const PolicySpec& spec, std::string_view name, const Budget& budget) {
  return spec.name == name && spec.params.empty() && !spec.kv && same_budget(spec.budget, budget);
}

std::optional<double> recall_of_bound(std::string_view name, const Budget& budget, std::span<const PointResult> all) {
  const auto bound =
      std::ranges::find_if(all, [&](const PointResult& p) { return p.quality && is_bound(p.spec, name, budget); });
  if (bound == all.end()) return std::nullopt;
  return bound->quality->recall_mean;
}

// Rows that a head reads in a decode step, mean over steps, layers and sequences; and those that there are.
struct MeanRows {
  double read = 0, all = 0;
};
MeanRows mean_rows(const PointResult& point) {
  MeanRows sum;
  double count = 0;
  for (const ResidencyLog& log : point.residency) {
    const Residency& head = log.head();
    for (std::uint32_t layer = 0; layer < head.layers; ++layer) {
      const Residency r = log.expand_layer(layer);
      for (std::uint32_t step = 1; step <= r.steps; ++step) {
        sum.read += static_cast<double>(r.at(step, 0).attended) / r.storage_heads;
        sum.all += r.prompt + step;
        count += 1;
      }
    }
  }
  return count > 0 ? MeanRows{sum.read / count, sum.all / count} : MeanRows{};
}

}  // namespace

PolicySpec bound_spec(std::string_view name, const Budget& budget) {
  PolicySpec bound;
  bound.name = name;
  bound.budget = budget;
  bound.has_budget = true;
  return bound;
}

std::optional<Budget> bound_budget(const PointResult& point) {
  // Under a sliding window full attention reads fewer rows than there are, and all that count.
  if (!point.quality || point.spec.is_full()) return std::nullopt;
  if (point.spec.budget.kind != Budget::Kind::kUnlimited) return point.spec.budget;
  const MeanRows rows = mean_rows(point);
  if (rows.read >= rows.all) return std::nullopt;
  const double tokens = std::max(1.0, std::round(rows.read - 1));
  return parse_budget(fmt::format("{:.0f}", tokens)).or_throw("tokens that a head reads", ExitCode::kFailure);
}

std::vector<PolicySpec> missing_bounds(std::span<const PointResult> points) {
  std::vector<PolicySpec> missing;
  for (const PointResult& point : points) {
    const std::optional<Budget> budget = bound_budget(point);
    if (!budget) continue;
    for (const std::string_view name : kBoundNames) {
      const auto there = [&](const PolicySpec& spec) { return is_bound(spec, name, *budget); };
      if (std::ranges::any_of(points, there, &PointResult::spec) || std::ranges::any_of(missing, there)) continue;
      missing.push_back(bound_spec(name, *budget));
    }
  }
  return missing;
}

std::optional<BoundRecalls> bounds_of(const PointResult& point, std::span<const PointResult> all) {
  const std::optional<Budget> budget = bound_budget(point);
  if (!budget) return std::nullopt;
  const std::optional<double> low = recall_of_bound("random", *budget, all);
  const std::optional<double> high = recall_of_bound("oracle", *budget, all);
  if (!low || !high || *high <= *low) return std::nullopt;
  return BoundRecalls{*budget, *low, *high};
}

}  // namespace kvroof
