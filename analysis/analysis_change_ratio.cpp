// By how much attention on the tokens that are kept grows when the others are dropped.
#include <algorithm>
#include <cmath>

#include "analysis/analysis.hpp"
#include "analysis/head_quality.hpp"
#include "analysis/quantile.hpp"

namespace kvroof {
namespace {

constexpr std::string_view kPoint = "scissorhands:budget=0.333";  // three times less, as in the paper

std::vector<double> ratios() { return even_grid(0, 0.05, 2); }

void replay_change(const ReplayedTrace& replayed, AnalysisResult& result) {
  const std::vector<PolicySpec> points = parse_policies(kPoint);
  std::vector<double> changes;
  const auto visit = [&](std::uint32_t layer, std::uint32_t head, const HeadQualities& all) {
    changes.clear();
    for (const HeadQuality& quality : all.front()) changes.push_back(1 / quality.recall - 1);
    std::sort(changes.begin(), changes.end());
    // A step whose kept tokens have no attention at all changes without bound: such a quantile is none.
    const auto quantile = [&](double share) {
      const double change = interpolated_quantile(changes.size(), share, [&](std::size_t i) { return changes[i]; });
      return std::isfinite(change) ? change : std::nan("");
    };
    const auto at_most = [&](double x) {
      const auto count = std::upper_bound(changes.begin(), changes.end(), x) - changes.begin();
      return static_cast<double>(count) / static_cast<double>(changes.size());
    };
    result.add(layer, head, {{quantile(0.5), quantile(0.9), at_most(0.1)}, {sample(ratios(), at_most)}});
  };
  for_each_head_quality(replayed, points, {true, false}, visit);
}

std::string finding(const AnalysisResult& result) {
  return fmt::format(
      "With a third of the prompt as budget, the attention on each token that Scissorhands keeps grows by {} (median "
      "step, mean over heads); {} of the steps grow by no more than a tenth.",
      percent_text(result.mean("median_change")), percent_text(result.mean("at_most_a_tenth")));
}

}  // namespace

AnalysisInfo change_ratio_analysis() {
  AnalysisInfo info;
  info.name = "change-ratio";
  info.title = "Attention change ratio";
  info.definition =
      "(α' − α) / α of the tokens that scissorhands:budget=0.333 keeps, α' being their attention when the others are "
      "gone. A replay holds queries and keys as recorded, so that every kept token of a step changes by the same 1/R "
      "− 1, R being the recall; the drift of a run under the policy, which the paper's figure contains, is not in it.";
  info.source = "Scissorhands (Liu et al. 2023), attention change ratio at 3× on OPT-13B";
  info.measures = {{"median_change", "change of the median step", MeasureUnit::kShare, true},
                   {"p90_change", "change of the 90th-percentile step", MeasureUnit::kShare},
                   {"at_most_a_tenth", "steps that change by 10 % or less", MeasureUnit::kShare}};
  info.charts = {{"steps",
                  "Attention change ratio of the kept tokens",
                  {"change x"},
                  {"steps that change by x or less (%)", false, true},
                  ratios(),
                  {"scissorhands, a third of the prompt"}}};
  info.finding = finding;
  info.replay = replay_change;
  return info;
}

}  // namespace kvroof
