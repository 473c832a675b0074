// How many tokens a step attends to, by the entropy of its weights.
#include <cmath>

#include "analysis/analysis.hpp"
#include "sim/core/number_text.hpp"

namespace kvroof {
namespace {

class EntropyOfHead final : public HeadAnalysis {
 public:
  void row(const HeadRow& row) override {
    double sum = 0;
    for (const float weight : row.weights) {
      if (weight > 0) sum += static_cast<double>(weight) * std::log(static_cast<double>(weight));
    }
    // Of a / mass: −Σ (a/m) ln(a/m). Rounding must not make it negative.
    const double entropy = std::max(0.0, std::log(row.mass) - sum / row.mass);
    entropy_.add(entropy);
    tokens_.add(std::exp(entropy));
    share_.add(std::exp(entropy) / static_cast<double>(row.weights.size()));
  }

  HeadValues finish() override { return {{share_.value(), tokens_.value(), entropy_.value()}, {}}; }

 private:
  Mean entropy_, tokens_, share_;
};

std::string finding(const AnalysisResult& result) {
  return fmt::format("By entropy a step attends to as much as {} tokens evenly: {} of those it sees.",
                     number_text(result.mean("effective_tokens")), percent_text(result.mean("effective_share")));
}

}  // namespace

AnalysisInfo entropy_analysis() {
  AnalysisInfo info;
  info.name = "entropy";
  info.title = "Entropy of attention";
  info.definition =
      "H = −Σ a ln a of a decode step's weights a, in nats; effective tokens: e^H, the number of tokens that an even "
      "attention of the same entropy has. Means over steps.";
  info.source = "Shannon 1948; e^H is the perplexity of the weights";
  info.measures = {{"effective_share", "effective tokens, of those seen", MeasureUnit::kShare, true},
                   {"effective_tokens", "effective tokens", MeasureUnit::kTokens},
                   {"entropy_nats", "entropy (nats)", MeasureUnit::kNumber}};
  info.finding = finding;
  info.start = [](const HeadContext&) -> std::unique_ptr<HeadAnalysis> { return std::make_unique<EntropyOfHead>(); };
  return info;
}

}  // namespace kvroof
