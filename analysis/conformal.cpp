#include "analysis/conformal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

namespace kvroof {
namespace {

constexpr std::size_t kEnoughRows = 12;
constexpr std::size_t kEnoughTables = 2;

struct Weighted {
  double score = 0, weight = 0;
};

// The smallest score that `share` of the weight does not exceed, with one more row of the largest weight above all.
double quantile(const std::vector<Weighted>& sorted, double share) {
  double total = 0, largest = 0;
  for (const Weighted& w : sorted) {
    total += w.weight;
    largest = std::max(largest, w.weight);
  }
  double below = 0;
  for (const Weighted& w : sorted) {
    below += w.weight;
    if (below >= share * (total + largest)) return w.score;
  }
  return sorted.back().score;
}

}  // namespace

double residual_score(const Estimate& predicted, double measured) {
  return std::abs(std::log(measured / predicted.value)) / std::log(predicted.high80 / predicted.value);
}

IntervalFactors IntervalTable::factors(const RowKind& kind, const std::string& left_out) const {
  struct Level {
    std::string name;
    std::function<bool(const RowKind&)> alike;
  };
  const std::array<Level, 4> levels = {
      {{fmt::format("{}, {}, {}", kind.memory, kind.engine, kind.metric),
        [&](const RowKind& k) {
          return k.memory == kind.memory && k.engine == kind.engine && k.metric == kind.metric;
        }},
       {fmt::format("{}, {}", kind.memory, kind.metric),
        [&](const RowKind& k) { return k.memory == kind.memory && k.metric == kind.metric; }},
       {kind.metric, [&](const RowKind& k) { return k.metric == kind.metric; }},
       {"all measured rows", [](const RowKind&) { return true; }}}};
  for (const Level& level : levels) {
    std::map<std::string, std::vector<double>> tables;
    std::size_t rows = 0;
    for (const Residual& r : residuals_) {
      if (r.group == left_out || !level.alike(r.kind)) continue;
      tables[r.group].push_back(r.score);
      ++rows;
    }
    if (rows < kEnoughRows || tables.size() < kEnoughTables) continue;
    std::vector<Weighted> scores;
    for (const auto& [name, table] : tables) {
      const double weight = 1 / std::sqrt(static_cast<double>(table.size()));
      for (const double score : table) scores.push_back({score, weight});
    }
    std::sort(scores.begin(), scores.end(), [](const Weighted& a, const Weighted& b) { return a.score < b.score; });
    // Rows of other engines or memories say that priors are too narrow, never that they are too wide.
    const bool same = &level == levels.data();
    return {std::max(quantile(scores, 0.80), same ? 0 : IntervalFactors{}.factor80),
            std::max(quantile(scores, 0.95), same ? 0 : IntervalFactors{}.factor95),
            fmt::format("{}: {} rows", level.name, rows)};
  }
  return {1, 1.9600 / 1.2816, "priors"};
}

Estimate with_factors(const Estimate& e, const IntervalFactors& f) {
  const double width = std::log(e.high80 / e.value);
  if (!(width > 0)) return e;
  const double w80 = std::exp(width * f.factor80), w95 = std::exp(width * std::max(f.factor95, f.factor80));
  return {e.value, e.value / w80, e.value * w80, e.value / w95, e.value * w95, e.dominated_by};
}

}  // namespace kvroof
