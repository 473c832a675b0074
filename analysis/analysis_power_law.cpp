// Whether accumulated attention follows a power law of its rank, and with which exponent.
#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/analysis.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

constexpr unsigned kPerOctave = 4;

const std::vector<double>& ranks() {
  static const std::vector<double> grid = log_grid(kLongestGrid, kPerOctave);
  return grid;
}

// ln y = intercept − exponent · ln x, by least squares.
struct Fit {
  double exponent = std::nan("");
  double intercept = std::nan("");
  double r_squared = std::nan("");
  double last = std::nan("");  // largest x
};

Fit fit_power_law(const std::vector<std::pair<double, double>>& points) {
  Fit fit;
  if (points.size() < 3) return fit;
  Mean x, y;
  for (const auto& [px, py] : points) {
    x.add(std::log(px));
    y.add(std::log(py));
  }
  double xx = 0, xy = 0, yy = 0;
  for (const auto& [px, py] : points) {
    const double dx = std::log(px) - x.value();
    const double dy = std::log(py) - y.value();
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  fit.exponent = -xy / xx;
  fit.intercept = y.value() + fit.exponent * x.value();
  // Scores that are all alike have exponent 0, and nothing is left to explain.
  fit.r_squared = yy > 0 ? xy * xy / (xx * yy) : 1;
  fit.last = points.back().first;
  return fit;
}

class PowerLawOfHead final : public HeadAnalysis {
 public:
  explicit PowerLawOfHead(const HeadContext& context) : scores_(context.tokens) {}

  void row(const HeadRow& row) override {
    for (std::size_t i = 0; i < row.weights.size(); ++i) scores_[row.first + i] += row.weights[i] / row.mass;
  }

  HeadValues finish() override {
    std::sort(scores_.begin(), scores_.end(), std::greater<>());
    const auto score_of = [&](double rank) {
      return scores_[static_cast<std::size_t>(rank) - 1] / static_cast<double>(scores_.size());
    };
    std::vector<std::pair<double, double>> points;
    const auto half = static_cast<double>(scores_.size() / 2);
    for (const double rank : ranks()) {
      if (rank <= half && score_of(rank) > 0) points.emplace_back(rank, score_of(rank));
    }
    const Fit fit = fit_power_law(points);
    const auto in_range = [&](double rank) { return rank <= static_cast<double>(scores_.size()); };
    return {{fit.exponent, fit.r_squared, fit.last},
            {sample(ranks(), [&](double rank) { return in_range(rank) ? score_of(rank) : std::nan(""); }),
             sample(ranks(), [&](double rank) {
               return rank <= half ? std::exp(fit.intercept - fit.exponent * std::log(rank)) : std::nan("");
             })}};
  }

 private:
  std::vector<double> scores_;
};

std::string finding(const AnalysisResult& result) {
  const double r = result.mean("r_squared");
  return fmt::format("Accumulated attention falls as rank^−{} over ranks 1 to {} (R² = {}{}).",
                     number_text(result.mean("exponent")), number_text(result.mean("fit_last_rank")), number_text(r),
                     r < 0.9 ? ": a power law fits poorly" : "");
}

}  // namespace

AnalysisInfo power_law_analysis() {
  AnalysisInfo info;
  info.name = "power-law";
  info.title = "Power law of accumulated attention";
  info.definition =
      "f(r): the attention that the token of rank r gets, summed over all rows (prompt included), as a share of all. "
      "s and R² of the least-squares line ln f = c − s · ln r over the ranks 1, 1.2, 1.4 … (four an octave, so that "
      "each octave weighs the same) up to half of the tokens; at least three ranks.";
  info.source = "Scissorhands (Liu et al. 2023), whose theorem assumes such a law";
  info.measures = {{"exponent", "exponent s", MeasureUnit::kNumber, true},
                   {"r_squared", "R² of the fit", MeasureUnit::kNumber, true},
                   {"fit_last_rank", "last rank of the fit (the first is 1)", MeasureUnit::kTokens}};
  info.charts = {{"ranks",
                  "Accumulated attention by rank",
                  {"rank of the token", true},
                  {"share of all attention (%)", true, true},
                  ranks(),
                  {"tokens by rank, mean over heads", "fitted power laws, mean over heads"},
                  {"fitted power laws, mean over heads"}}};
  info.prompt_rows = true;
  info.finding = finding;
  info.start = [](const HeadContext& context) -> std::unique_ptr<HeadAnalysis> {
    return std::make_unique<PowerLawOfHead>(context);
  };
  return info;
}

}  // namespace kvroof
