// How many weights are negligible, by the thresholds of H2O and of Scissorhands.
#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/analysis.hpp"

namespace kvroof {
namespace {

constexpr double kOfMaximum = 0.01;  // H2O's threshold
constexpr int kOctaves = 20;         // the chart goes down to 2^−20 of the row's maximum

class SparsityOfHead final : public HeadAnalysis {
 public:
  void row(const HeadRow& row) override {
    const float largest = *std::max_element(row.weights.begin(), row.weights.end());
    const double limit = kOfMaximum * static_cast<double>(largest);
    std::size_t below_maximum = 0;
    std::size_t below_even = 0;
    std::array<std::uint32_t, kOctaves + 1> octaves{};  // [i]: 2^−i of the maximum or more, less than twice that
    for (std::size_t i = 0; i < row.weights.size(); ++i) {
      const auto weight = static_cast<double>(row.weights[i]);
      below_maximum += weight < limit ? 1U : 0U;
      below_even += weight * static_cast<double>(row.weights.size()) < row.mass ? 1U : 0U;
      if (weight <= 0) continue;
      const int octave = -std::ilogb(weight / static_cast<double>(largest));
      if (octave <= kOctaves) ++octaves[static_cast<std::size_t>(octave)];
    }
    const auto visible = static_cast<double>(row.weights.size());
    of_maximum_.add(static_cast<double>(below_maximum) / visible);
    of_even_.add(static_cast<double>(below_even) / visible);
    double at_least = 0;
    for (std::size_t i = 0; i <= kOctaves; ++i) {
      at_least += octaves[i];
      below_[kOctaves - i].add(1 - at_least / visible);
    }
  }

  HeadValues finish() override {
    std::vector<double> curve;
    for (const Mean& mean : below_) curve.push_back(mean.value());
    return {{of_maximum_.value(), of_even_.value()}, {curve}};
  }

 private:
  Mean of_maximum_, of_even_;
  std::array<Mean, kOctaves + 1> below_;  // by ascending threshold
};

std::string finding(const AnalysisResult& result) {
  return fmt::format(
      "{} of the weights that a step computes are below 1 % of its largest (H2O); {} are below an even share, 1/t "
      "(Scissorhands).",
      percent_text(result.mean("below_1_percent_of_max")), percent_text(result.mean("below_even_share")));
}

}  // namespace

AnalysisInfo sparsity_analysis() {
  AnalysisInfo info;
  info.name = "sparsity";
  info.title = "Sparsity of attention";
  info.definition =
      "The share of a decode step's weights below a threshold: 1 % of the step's largest weight (H2O), or 1/t with t "
      "the tokens that the step sees (Scissorhands). Only tokens that the query may see count.";
  info.source = "H2O (Zhang et al. 2023); Scissorhands (Liu et al. 2023)";
  info.measures = {{"below_1_percent_of_max", "below 1 % of the step's maximum", MeasureUnit::kShare, true},
                   {"below_even_share", "below 1/t", MeasureUnit::kShare, true}};
  info.charts = {{"thresholds",
                  "Sparsity by threshold",
                  {"threshold, relative to the step's largest weight", true},
                  {"weights below it (%)", false, true},
                  sample(even_grid(-kOctaves, 1, 0), [](double x) { return std::exp2(x); }),
                  {"weights below the threshold"}}};
  info.finding = finding;
  info.start = [](const HeadContext&) -> std::unique_ptr<HeadAnalysis> { return std::make_unique<SparsityOfHead>(); };
  return info;
}

}  // namespace kvroof
