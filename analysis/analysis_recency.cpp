// Where attention lies: on the latest tokens, on the first ones, or between.
#include <algorithm>
#include <cmath>

#include "analysis/analysis.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kSinks = 4;
constexpr std::size_t kRecent = 32;

const std::vector<double>& windows() {
  static const std::vector<double> grid = log_grid(kLongestGrid);
  return grid;
}

class RecencyOfHead final : public HeadAnalysis {
 public:
  explicit RecencyOfHead(const HeadContext& context)
      : tokens_(context.tokens), last_(windows().size()), with_sinks_(windows().size()) {}

  void row(const HeadRow& row) override {
    // later[i]: share of token i of the row and all after it.
    const std::size_t visible = row.weights.size();
    later_.assign(visible + 1, 0.0);
    for (std::size_t i = visible; i-- > 0;) later_[i] = later_[i + 1] + row.weights[i] / row.mass;
    const std::size_t sinks = row.first < kSinks ? std::min<std::size_t>(kSinks - row.first, visible) : 0;
    const double of_sinks = later_[0] - later_[sinks];
    for (std::size_t w = 0; w < windows().size(); ++w) {
      const std::size_t begin = begin_of(windows()[w], visible);
      last_[w].add(later_[begin]);
      with_sinks_[w].add(begin <= sinks ? later_[0] : later_[begin] + of_sinks);
    }
    const std::size_t begin = begin_of(kRecent, visible);
    own_.add(later_[visible - 1]);
    recent_.add(later_[begin]);
    sinks_.add(of_sinks);
    between_.add(begin <= sinks ? 0.0 : later_[sinks] - later_[begin]);
  }

  HeadValues finish() override {
    const auto values = [&](const std::vector<Mean>& means) {
      std::vector<double> y;
      for (std::size_t w = 0; w < means.size(); ++w) {
        y.push_back(windows()[w] < 2.0 * tokens_ ? means[w].value() : std::nan(""));
      }
      return y;
    };
    return {{sinks_.value(), recent_.value(), own_.value(), between_.value()}, {values(last_), values(with_sinks_)}};
  }

 private:
  // The first of the last `count` of `visible` tokens.
  static std::size_t begin_of(double count, std::size_t visible) {
    return count < static_cast<double>(visible) ? visible - static_cast<std::size_t>(count) : 0;
  }

  std::uint32_t tokens_;
  Mean own_, recent_, sinks_, between_;
  std::vector<Mean> last_, with_sinks_;
  std::vector<double> later_;
};

std::string finding(const AnalysisResult& result) {
  return fmt::format(
      "{} of a step's attention lies on the first 4 tokens, {} on the last 32, {} on what is between; a policy that "
      "keeps only first and last tokens loses the latter.",
      percent_text(result.mean("sinks")), percent_text(result.mean("last_32")), percent_text(result.mean("between")));
}

}  // namespace

AnalysisInfo recency_analysis() {
  AnalysisInfo info;
  info.name = "recency";
  info.title = "Recency and attention sinks";
  info.definition =
      "The share of a decode step's attention by distance: on the last x tokens, the step's own included, and on these "
      "with the first 4 tokens of the sequence (sinks). Means over steps.";
  info.source = "StreamingLLM (Xiao et al. 2023), attention sinks";
  info.measures = {{"sinks", "first 4 tokens", MeasureUnit::kShare, true},
                   {"last_32", "last 32 tokens", MeasureUnit::kShare, true},
                   {"own", "own token (one of the last 32)", MeasureUnit::kShare},
                   {"between", "neither first 4 nor last 32", MeasureUnit::kShare, true}};
  info.charts = {{"window",
                  "Attention on the last tokens",
                  {"last x tokens", true},
                  {"share of the attention (%)", false, true},
                  windows(),
                  {"last x tokens", "last x and first 4 tokens"},
                  {"last x and first 4 tokens"}}};
  info.finding = finding;
  info.start = [](const HeadContext& context) -> std::unique_ptr<HeadAnalysis> {
    return std::make_unique<RecencyOfHead>(context);
  };
  return info;
}

}  // namespace kvroof
