// After how many steps a token is attended to again, and for how long a prompt token is needed at all.
#include <algorithm>
#include <cmath>

#include "analysis/analysis.hpp"
#include "analysis/quantile.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kNever = UINT32_MAX;

const std::vector<double>& distances() {
  static const std::vector<double> grid = log_grid(kLongestGrid);
  return grid;
}

std::vector<double> times() { return even_grid(0, 0.05, 1); }

class ReuseOfHead final : public HeadAnalysis {
 public:
  explicit ReuseOfHead(const HeadContext& context)
      : context_(context), last_(context.tokens, kNever), gaps_(context.tokens) {}

  void row(const HeadRow& row) override {
    for (std::size_t i = 0; i < row.weights.size(); ++i) {
      if (!row.pivotal(i)) continue;
      std::uint32_t& last = last_[row.first + i];
      if (last != kNever) ++gaps_[row.query.value - last];
      last = row.query.value;
    }
  }

  HeadValues finish() override {
    // longer[d]: gaps of at least d.
    std::vector<double> longer(gaps_.size() + 1);
    for (std::size_t d = gaps_.size(); d-- > 0;) longer[d] = longer[d + 1] + static_cast<double>(gaps_[d]);
    const double all = longer[0];
    // The i-th gap by length is the least that so many gaps do not exceed.
    const auto gap_at = [&](std::size_t i) {
      std::size_t d = 1;
      while (d + 1 < longer.size() && all - longer[d + 1] <= static_cast<double>(i)) ++d;
      return static_cast<double>(d);
    };
    const auto quantile = [&](double share) {
      return all > 0 ? interpolated_quantile(static_cast<std::size_t>(all), share, gap_at) : std::nan("");
    };
    const auto longer_than = [&](double d) {
      if (all == 0 || d >= 2 * static_cast<double>(gaps_.size())) return std::nan("");
      return d < static_cast<double>(longer.size()) ? longer[static_cast<std::size_t>(d)] / all : 0.0;
    };
    std::vector<double> needed = needed_after();
    const auto needed_longer = [&](double time) {
      if (needed.empty()) return std::nan("");
      const double steps = std::floor(time * context_.decoded() + 1e-9);
      const auto alive = needed.end() - std::upper_bound(needed.begin(), needed.end(), steps);
      return static_cast<double>(alive) / static_cast<double>(needed.size());
    };
    const double used =
        context_.decoded() > 0 ? static_cast<double>(needed.size()) / context_.prompt : std::nan("");
    return {{used, needed_longer(0.5), quantile(0.5), quantile(0.9)},
            {sample(distances(), longer_than), sample(times(), needed_longer)}};
  }

 private:
  // Of each prompt token that is pivotal at any decode step, the last such step, from 1; ascending.
  [[nodiscard]] std::vector<double> needed_after() const {
    std::vector<double> steps;
    for (std::uint32_t token = 0; token < context_.prompt; ++token) {
      if (last_[token] != kNever && last_[token] >= context_.prompt)
        steps.push_back(last_[token] - context_.prompt + 1);
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  HeadContext context_;
  std::vector<std::uint32_t> last_;  // pivotal row, by token
  std::vector<std::uint64_t> gaps_;  // by length
};

std::string finding(const AnalysisResult& result) {
  return fmt::format(
      "A token that is attended to is attended to again after {} steps (median; nine of ten within {}). {} of the "
      "prompt's tokens are attended to at all while decoding, and {} of these still in the second half.",
      number_text(result.mean("median_distance")), number_text(result.mean("p90_distance")),
      percent_text(result.mean("prompt_used")), percent_text(result.mean("prompt_used_after_half")));
}

}  // namespace

AnalysisInfo reuse_analysis() {
  AnalysisInfo info;
  info.name = "reuse";
  info.title = "Reuse distance and survival";
  info.definition =
      "A token is touched at a step that gives it more than 1/t of its attention, t being the tokens that the step "
      "sees. Reuse distance: steps from one touch of a token to its next, over all rows (prompt included). Survival: "
      "of the prompt tokens touched while decoding, the share that will be touched after a given step; nothing is "
      "known beyond the recording, so the curve ends at 0.";
  info.source = "reuse distance: Mattson et al. 1970; pivotal tokens: Scissorhands (Liu et al. 2023)";
  info.measures = {{"prompt_used", "prompt tokens touched while decoding", MeasureUnit::kShare, true},
                   {"prompt_used_after_half", "of these, touched after half of it", MeasureUnit::kShare, true},
                   {"median_distance", "reuse distance, median (steps)", MeasureUnit::kNumber},
                   {"p90_distance", "reuse distance, 90th percentile (steps)", MeasureUnit::kNumber}};
  info.charts = {{"distance",
                  "Reuse distance",
                  {"steps x", true},
                  {"reuses at a distance of x or more (%)", false, true},
                  distances(),
                  {"steps between two touches of a token"}},
                 {"survival",
                  "Survival of the prompt while decoding",
                  {"time (% of the generation)", false, true},
                  {"tokens still to be touched (%)", false, true},
                  times(),
                  {"prompt tokens that are touched at all"}}};
  info.prompt_rows = true;
  info.finding = finding;
  info.start = [](const HeadContext& context) -> std::unique_ptr<HeadAnalysis> {
    return std::make_unique<ReuseOfHead>(context);
  };
  return info;
}

}  // namespace kvroof
