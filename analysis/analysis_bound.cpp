// What a window loses of the attention's output, beside the bound that its lost attention gives.
#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/analysis.hpp"
#include "sim/attention/sums.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kBins = 20;  // of lost attention

class BoundOfHead final : public HeadAnalysis {
 public:
  explicit BoundOfHead(const HeadContext& context)
      : window_(context.prompt / 2 + 1), value_(context.v_width), output_(context.v_width) {}

  void row(const HeadRow& row) override {
    see_values(row);
    const std::size_t kept = std::min<std::size_t>(window_, row.weights.size());
    const std::span<const float> weights = row.weights.last(kept);
    const double recall = std::min(1.0, sum_of(weights) / row.mass);
    weighted_sum(weights, row.values.slice(row.query.value + 1 - kept, kept), output_);
    const double mass = recall * row.mass + row.sink;
    for (std::size_t c = 0; c < output_.size(); ++c) {
      output_[c] = static_cast<float>(output_[c] / mass) - row.output[c];
    }
    if (mass <= 0) return;  // nothing left to renormalise
    const double error = norm_of(output_);
    const double bound = 2 * (1 - recall) * largest_;
    const double norm = norm_of(row.output);
    lost_.add(1 - recall);
    if (norm > 0) {
      error_.add(error / norm);
      bound_.add(bound / norm);
    }
    if (kept == row.weights.size() || largest_ == 0) return;
    // Rounding of the outputs, in float, is a few units in the last place of the largest value.
    const double share = error / (bound + 1e-5 * largest_);
    most_ = std::isnan(most_) ? share : std::max(most_, share);
    const auto bin = std::min(kBins - 1, static_cast<std::size_t>((1 - recall) * kBins));
    bins_[bin].add(error / largest_);
    bin_bounds_[bin].add(bound / largest_);
  }

  HeadValues finish() override {
    const auto values = [](const std::array<Mean, kBins>& means) {
      std::vector<double> y;
      for (const Mean& mean : means) y.push_back(mean.value());
      return y;
    };
    return {{error_.value(), bound_.value(), lost_.value(), most_}, {values(bins_), values(bin_bounds_)}};
  }

 private:
  // The largest norm of a value up to the query.
  void see_values(const HeadRow& row) {
    for (; seen_ <= row.query.value; ++seen_) {
      convert_to_float(row.values.type, row.values.row(seen_), value_);
      largest_ = std::max(largest_, norm_of(value_));
    }
  }

  std::size_t window_;
  std::uint32_t seen_ = 0;
  double largest_ = 0;
  std::vector<float> value_, output_;
  Mean error_, bound_, lost_;
  double most_ = std::nan("");
  std::array<Mean, kBins> bins_, bin_bounds_;
};

std::string finding(const AnalysisResult& result) {
  return fmt::format(
      "A window of half the prompt loses {} of the attention and changes the output by {} of its norm; the bound "
      "allows {}. The worst step of a head comes to {} of its bound (mean over heads).",
      percent_text(result.mean("lost_attention")), percent_text(result.mean("output_error")),
      percent_text(result.mean("bound")), percent_text(result.mean("most_of_bound")));
}

}  // namespace

AnalysisInfo bound_analysis() {
  AnalysisInfo info;
  info.name = "bound";
  info.title = "Output error beside its bound";
  info.definition =
      "A window of half the prompt and the own token. R: the share of the attention on it; o the output of full "
      "attention, ô that of the window's weights renormalised: ‖o − ô‖ ≤ 2 (1 − R) · max ‖v‖, because the weights "
      "move by 2 (1 − R) in all. Error and bound are divided by ‖o‖; in the chart by max ‖v‖ of the tokens so far.";
  info.source = "triangle inequality; Scissorhands (Liu et al. 2023) bounds the same error in its theorem";
  info.measures = {{"output_error", "‖o − ô‖ / ‖o‖", MeasureUnit::kShare, true},
                   {"bound", "2 (1 − R) · max ‖v‖ / ‖o‖", MeasureUnit::kShare},
                   {"lost_attention", "lost attention, 1 − R", MeasureUnit::kShare, true},
                   {"most_of_bound", "largest error / bound of a step", MeasureUnit::kShare}};
  const double half = 0.5 / kBins;
  info.charts = {{"error",
                  "Output error of a window by lost attention",
                  {"lost attention 1 − R (%)", false, true},
                  {"change of the output, in max ‖v‖", false, false},
                  even_grid(half, 2 * half, 1 - half),
                  {"measured, mean", "bound 2 (1 − R)"},
                  {"bound 2 (1 − R)"}}};
  info.outputs = true;
  info.finding = finding;
  info.start = [](const HeadContext& context) -> std::unique_ptr<HeadAnalysis> {
    return std::make_unique<BoundOfHead>(context);
  };
  return info;
}

}  // namespace kvroof
