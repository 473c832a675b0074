// What policies keep of the attention, head by head, and how far they are from an oracle.
#include <algorithm>
#include <cmath>

#include "analysis/analysis.hpp"
#include "analysis/head_quality.hpp"
#include "sim/replay/bounds.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kMeasures = 6;  // of a point

// Budgets at which the points meet random and oracle, as in `kvroof replay`: a policy without a budget is replayed
// beforehand for what it reads. Nothing where that is everything.
std::vector<std::optional<Budget>> budgets_met(const ReplayedTrace& replayed) {
  std::vector<std::optional<Budget>> budgets;
  ReplayOptions options;
  options.seed = replayed.trace.manifest().seed;
  options.measure = {true, false};
  for (const PolicySpec& point : replayed.options.points) {
    const bool limited = point.budget.kind != Budget::Kind::kUnlimited;
    budgets.push_back(limited ? point.budget
                              : bound_budget(replay(replayed.trace, {&point, 1}, options, replayed.pool).front()));
  }
  return budgets;
}

std::size_t index_of(const PolicySpec& spec, const std::vector<PolicySpec>& all) {
  const auto same = [&](const PolicySpec& other) { return other.text() == spec.text(); };
  return static_cast<std::size_t>(std::ranges::find_if(all, same) - all.begin());
}

// The points asked for, and after them random and oracle at each of the budgets.
std::vector<PolicySpec> with_bounds(const std::vector<PolicySpec>& points,
                                    std::span<const std::optional<Budget>> budgets) {
  std::vector<PolicySpec> all = points;
  for (const std::optional<Budget>& budget : budgets) {
    for (const std::string_view name : kBoundNames) {
      if (budget && index_of(bound_spec(name, *budget), all) == all.size()) all.push_back(bound_spec(name, *budget));
    }
  }
  return all;
}

struct HeadMeans {
  double recall, worst, error, attended;
};

HeadMeans means_of(const std::vector<HeadQuality>& values) {
  QualityStats stats(values.size(), 1, true);
  double attended = 0;
  for (const HeadQuality& value : values) {
    stats.add(0, value.recall, value.output_error);
    attended += value.attended;
  }
  const std::optional<Quality> quality = stats.finish();
  return {quality->recall_mean, quality->recall_worst1, quality->output_error.value_or(std::nan("")),
          attended / static_cast<double>(values.size())};
}

void adapt(const AnalyzeOptions& options, AnalysisInfo& info) {
  info.measures.clear();
  for (const PolicySpec& point : options.points) {
    const std::string name = point.text();
    info.measures.push_back({name + ".recall", name + ": recall", MeasureUnit::kShare, true});
    info.measures.push_back({name + ".recall_worst1", "  recall, worst 1 % of a head's steps", MeasureUnit::kShare});
    info.measures.push_back({name + ".output_error", "  output error", MeasureUnit::kShare});
    info.measures.push_back(
        {name + ".oracle_gap", "  oracle's recall at this budget, minus its own", MeasureUnit::kShare});
    info.measures.push_back({name + ".position", "  between random (0) and oracle (1)", MeasureUnit::kNumber});
    info.measures.push_back({name + ".attended", "  tokens attended to, the own included", MeasureUnit::kTokens});
  }
}

void replay_points(const ReplayedTrace& replayed, AnalysisResult& result) {
  const std::vector<PolicySpec>& asked = replayed.options.points;
  const std::vector<std::optional<Budget>> budgets = budgets_met(replayed);
  const std::vector<PolicySpec> points = with_bounds(asked, budgets);
  for_each_head_quality(replayed, points, {}, [&](std::uint32_t layer, std::uint32_t head, const HeadQualities& all) {
    HeadValues values;
    for (std::size_t p = 0; p < asked.size(); ++p) {
      const HeadMeans own = means_of(all[p]);
      const auto recall_of = [&](const char* bound) {
        return budgets[p] ? means_of(all[index_of(bound_spec(bound, *budgets[p]), points)]).recall : 1.0;
      };
      const double best = recall_of("oracle");
      const double worst = recall_of("random");
      const double position = best > worst ? (own.recall - worst) / (best - worst) : std::nan("");
      values.measures.insert(values.measures.end(),
                             {own.recall, own.worst, own.error, best - own.recall, position, own.attended});
    }
    result.add(layer, head, values);
  });
}

std::string finding(const AnalysisResult& result) {
  std::string text = "Of a step's attention";
  const auto& measures = result.info().measures;
  for (std::size_t m = 0; m < measures.size(); m += kMeasures) {
    const std::string name = measures[m].key.substr(0, measures[m].key.rfind('.'));
    text += fmt::format("{} {} keeps {}", m == 0 ? "" : ",", name, percent_text(result.mean(m)));
    const double gap = result.mean(m + 3);
    if (gap > 0) text += fmt::format(" (an oracle {})", percent_text(result.mean(m) + gap));
  }
  return text + ".";
}

}  // namespace

AnalysisInfo policy_analysis() {
  AnalysisInfo info;
  info.name = "policy";
  info.title = "What policies keep";
  info.definition =
      "Of --policy and --budget, replayed: recall is the share of a decode step's attention on the tokens that the "
      "policy lets it attend to; output error is ‖o − ô‖ / ‖o‖; the oracle reads the tokens with the most attention, "
      "chosen anew at each step, as many as the budget says, or as a policy without one reads. As `kvroof replay` "
      "computes them, here by head.";
  info.source = "docs/replay.md";
  info.finding = finding;
  info.replay = replay_points;
  info.adapt = adapt;
  return info;
}

}  // namespace kvroof
