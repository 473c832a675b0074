// How concentrated attention is: the share of it that the largest weights hold.
#include <algorithm>
#include <cmath>
#include <functional>

#include "analysis/analysis.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

constexpr double kMost = 0.9;  // of the attention that "tokens for 90 %" asks for
constexpr unsigned kPoints = 100;

// Adds to y the share of the total that the ⌈p · n⌉ largest values hold, for p = 0, 1 … 100 %; `sorted` descends.
// Returns how many values hold kMost of it.
std::size_t add_concentration(std::span<const double> sorted, double total, std::vector<double>& y) {
  std::size_t enough = sorted.size();
  std::size_t taken = 0;
  double sum = 0;
  for (unsigned p = 0; p <= kPoints; ++p) {
    const std::size_t upto = (p * sorted.size() + kPoints - 1) / kPoints;
    for (; taken < upto; ++taken) {
      sum += sorted[taken];
      if (sum >= kMost * total) enough = std::min(enough, taken + 1);
    }
    y[p] += sum / total;
  }
  return enough;
}

class MassOfHead final : public HeadAnalysis {
 public:
  explicit MassOfHead(const HeadContext& context) : scores_(context.tokens), first_seen_(context.tokens) {}

  void row(const HeadRow& row) override {
    sorted_.assign(row.weights.begin(), row.weights.end());
    std::sort(sorted_.begin(), sorted_.end(), std::greater<>());
    const std::size_t enough = add_concentration(sorted_, row.mass, steps_);
    tokens_.add(static_cast<double>(enough));
    share_.add(static_cast<double>(enough) / static_cast<double>(row.weights.size()));
    for (std::size_t i = 0; i < row.weights.size(); ++i) scores_[row.first + i] += row.weights[i] / row.mass;
    first_seen_ = std::min(first_seen_, row.first);
  }

  HeadValues finish() override {
    const double rows = static_cast<double>(tokens_.count);
    const double none = std::nan("");
    if (tokens_.count == 0) {
      return {{none, none, none}, {std::vector(kPoints + 1, none), std::vector(kPoints + 1, none)}};
    }
    for (double& y : steps_) y /= rows;
    sorted_.assign(scores_.begin() + first_seen_, scores_.end());
    std::sort(sorted_.begin(), sorted_.end(), std::greater<>());
    std::vector<double> fixed(kPoints + 1);
    const std::size_t enough = add_concentration(sorted_, rows, fixed);
    return {{share_.value(), tokens_.value(), static_cast<double>(enough) / static_cast<double>(sorted_.size())},
            {steps_, fixed}};
  }

 private:
  std::vector<double> scores_;  // of decode rows, by token
  std::uint32_t first_seen_;
  std::vector<double> steps_ = std::vector<double>(kPoints + 1);
  Mean tokens_, share_;
  std::vector<double> sorted_;
};

std::string finding(const AnalysisResult& result) {
  return fmt::format(
      "90 % of a step's attention lies on {} of its tokens ({} tokens). One set for the whole generation, the best in "
      "hindsight, needs {} of those that some step sees.",
      percent_text(result.mean("share_for_90")), number_text(result.mean("tokens_for_90")),
      percent_text(result.mean("accumulated_share_for_90")));
}

}  // namespace

AnalysisInfo mass_analysis() {
  AnalysisInfo info;
  info.name = "mass";
  info.title = "Attention mass of the top tokens";
  info.definition =
      "M(p): the share of a decode step's attention on its ⌈p·t⌉ largest weights, t being the tokens that the step "
      "sees; mean over steps. Accumulated: the same of each token's attention summed over all decode steps, which is "
      "what one fixed set, chosen with hindsight, would get.";
  info.source = "Keyformer (Adnan et al. 2024), Fig. 3b, which does not say which of the two it shows";
  info.measures = {
      {"share_for_90", "tokens for 90 % of a step's attention, of those it sees", MeasureUnit::kShare, true},
      {"tokens_for_90", "the same, in tokens", MeasureUnit::kTokens},
      {"accumulated_share_for_90", "one set for 90 % of all steps' attention, of the tokens that some step sees",
       MeasureUnit::kShare, true}};
  info.charts = {{"cdf",
                  "Attention mass of the top tokens",
                  {"top tokens, of those seen (%)", false, true},
                  {"share of the attention (%)", false, true},
                  even_grid(0, 1.0 / kPoints, 1),
                  {"chosen at each step", "one set, in hindsight"}}};
  info.finding = finding;
  info.start = [](const HeadContext& context) -> std::unique_ptr<HeadAnalysis> {
    return std::make_unique<MassOfHead>(context);
  };
  return info;
}

}  // namespace kvroof
