// Whether tokens that were pivotal stay so.
#include <algorithm>
#include <cmath>

#include "analysis/analysis.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kNever = UINT32_MAX;

// For any split t: a token is pivotal before it when its first pivotal row is, and after it when its last one is.
class PersistenceOfHead final : public HeadAnalysis {
 public:
  explicit PersistenceOfHead(const HeadContext& context)
      : first_(context.tokens, kNever), last_(context.tokens, kNever) {}

  void row(const HeadRow& row) override {
    for (std::size_t i = 0; i < row.weights.size(); ++i) {
      if (!row.pivotal(i)) continue;
      const std::size_t token = row.first + i;
      if (first_[token] == kNever) first_[token] = row.query.value;
      last_[token] = row.query.value;
    }
  }

  HeadValues finish() override;

 private:
  struct Split {
    double ratio, before;
  };
  // S before: tokens pivotal in rows [0, t). The ratio: which part of the tokens < t that are pivotal in rows from t on
  // is in it. NaN when none is.
  [[nodiscard]] Split split_at(std::size_t t) const {
    double before = 0;
    double after = 0;
    double both = 0;
    for (std::size_t token = 0; token < t; ++token) {
      if (first_[token] == kNever) continue;
      const bool was = first_[token] < t;
      const bool is = last_[token] >= t;
      before += was ? 1 : 0;
      after += is ? 1 : 0;
      both += was && is ? 1 : 0;
    }
    return {both / after, before / static_cast<double>(t)};
  }

  std::vector<std::uint32_t> first_, last_;  // pivotal rows, by token
};

std::vector<double> splits() { return even_grid(0.1, 0.05, 0.9); }

HeadValues PersistenceOfHead::finish() {
  const std::size_t tokens = first_.size();
  const Split half = split_at(tokens / 2);
  HeadValues values{{half.ratio, half.before, half.ratio - half.before}, {{}, {}}};
  for (const double share : splits()) {
    const auto t = static_cast<std::size_t>(std::floor(share * static_cast<double>(tokens) + 1e-9));
    const Split split = split_at(t);
    values.lines[0].push_back(split.ratio);
    values.lines[1].push_back(split.before);
  }
  return values;
}

std::string finding(const AnalysisResult& result) {
  const double ratio = result.mean("persistence");
  const double chance = result.mean("pivotal_before");
  return fmt::format(
      "Of the earlier tokens that are pivotal in the second half, {} were pivotal in the first half. A random set of "
      "the same size would hold {} of them: {}.",
      percent_text(ratio), percent_text(chance),
      chance > 0.9            ? "the ratio says little here, because nearly every token was pivotal once"
      : ratio - chance < 0.05 ? "hardly less"
                              : "the difference is persistence");
}

}  // namespace

AnalysisInfo persistence_analysis() {
  AnalysisInfo info;
  info.name = "persistence";
  info.title = "Persistence of importance";
  info.definition =
      "Pivotal at a step: more than 1/t of its attention, t being the tokens that it sees. With S before and S after "
      "the sets of tokens pivotal in any row before and after the split (half of the sequence, prompt included): |S "
      "after ∩ S before| / |tokens of S after that are older than the split|. Baseline: a random set as large as S "
      "before, |S before| / split.";
  info.source = "Scissorhands (Liu et al. 2023), Fig. 2";
  info.measures = {{"persistence", "persistence ratio, split at half", MeasureUnit::kShare, true},
                   {"pivotal_before", "of a random set of the same size", MeasureUnit::kShare, true},
                   {"gain", "difference", MeasureUnit::kShare}};
  info.charts = {{"splits",
                  "Persistence ratio by where the sequence is split",
                  {"split (% of the sequence)", false, true},
                  {"persistence ratio (%)", false, true},
                  splits(),
                  {"pivotal tokens", "random set of the same size"},
                  {"random set of the same size"}}};
  info.prompt_rows = true;
  info.finding = finding;
  info.start = [](const HeadContext& context) -> std::unique_ptr<HeadAnalysis> {
    return std::make_unique<PersistenceOfHead>(context);
  };
  return info;
}

}  // namespace kvroof
