// Whether the heavy hitters of the prompt are still the heavy hitters later.
#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/analysis.hpp"

namespace kvroof {
namespace {

constexpr double kHeavy = 0.1;  // of the prompt's tokens
constexpr std::uint32_t kSegments = 8;

class OverlapOfHead final : public HeadAnalysis {
 public:
  explicit OverlapOfHead(const HeadContext& context)
      : context_(context),
        heavy_(std::max<std::size_t>(1, static_cast<std::size_t>(kHeavy * context.prompt))),
        scores_(context.prompt) {
    with_prompt_.fill(std::nan(""));
    with_last_.fill(std::nan(""));
  }

  void row(const HeadRow& row) override {
    const std::uint32_t segment =
        row.decoded ? (row.query.value - context_.prompt) * kSegments / context_.decoded() : 0;
    if (row.decoded != decoding_ || segment != segment_) end_part();
    decoding_ = row.decoded;
    segment_ = segment;
    for (std::size_t i = 0; i < row.weights.size() && row.first + i < context_.prompt; ++i) {
      scores_[row.first + i] += row.weights[i] / row.mass;
    }
  }

  HeadValues finish() override {
    end_part();
    Mean all;
    for (const double overlap : with_prompt_) all.add(overlap);
    const double chance = static_cast<double>(heavy_) / context_.prompt;
    return {{all.value(), with_prompt_[kSegments - 1], chance},
            {{with_prompt_.begin(), with_prompt_.end()},
             {with_last_.begin(), with_last_.end()},
             std::vector<double>(kSegments, chance)}};
  }

 private:
  // The tokens with the highest scores, the older ones first among equals; ascending. Fewer where a window shows fewer.
  [[nodiscard]] std::vector<std::uint32_t> heaviest() const {
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t i = 0; i < scores_.size(); ++i) {
      if (scores_[i] > 0) tokens.push_back(i);
    }
    const std::size_t count = std::min(heavy_, tokens.size());
    const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(count);
    std::partial_sort(tokens.begin(), end, tokens.end(), [&](std::uint32_t a, std::uint32_t b) {
      return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
    });
    tokens.resize(count);
    std::sort(tokens.begin(), tokens.end());
    return tokens;
  }

  // The share of `now` that is among those of `before`; nothing where a window hides the prompt from either.
  static double overlap(const std::vector<std::uint32_t>& now, const std::vector<std::uint32_t>& before) {
    if (now.empty() || before.empty()) return std::nan("");
    std::vector<std::uint32_t> common;
    std::set_intersection(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(common));
    return static_cast<double>(common.size()) / static_cast<double>(now.size());
  }

  // The prompt, or a segment of the decoded rows, is over.
  void end_part() {
    std::vector<std::uint32_t> heavy = heaviest();
    if (decoding_) {
      with_prompt_[segment_] = overlap(heavy, of_prompt_);
      with_last_[segment_] = overlap(heavy, of_last_);
    } else {
      of_prompt_ = heavy;
    }
    of_last_ = std::move(heavy);
    std::fill(scores_.begin(), scores_.end(), 0.0);
  }

  HeadContext context_;
  std::size_t heavy_;
  std::vector<double> scores_;  // of the part at hand, by prompt token
  bool decoding_ = false;
  std::uint32_t segment_ = 0;
  std::vector<std::uint32_t> of_prompt_, of_last_;
  std::array<double, kSegments> with_prompt_{}, with_last_{};
};

std::string finding(const AnalysisResult& result) {
  return fmt::format(
      "Of the prompt tokens that get the most attention while decoding, {} are heavy hitters of the prompt itself ({} "
      "at the end of the generation); chance would give {}.",
      percent_text(result.mean("overlap")), percent_text(result.mean("overlap_at_end")),
      percent_text(result.mean("chance")));
}

}  // namespace

AnalysisInfo overlap_analysis() {
  AnalysisInfo info;
  info.name = "heavy-hitters";
  info.title = "Heavy-hitter overlap over time";
  info.definition =
      "Heavy hitters: the 10 % of the prompt's tokens with the most attention, summed over the rows of the prompt, or "
      "over those of one eighth of the generation; only tokens that get some. Overlap: the share of the latter that is "
      "among the former, none where a window hides the prompt; the part before the first eighth is the prompt.";
  info.source = "H2O (Zhang et al. 2023), heavy hitters by accumulated attention";
  info.measures = {{"overlap", "overlap with the prompt's, mean over the generation", MeasureUnit::kShare, true},
                   {"overlap_at_end", "in its last eighth", MeasureUnit::kShare, true},
                   {"chance", "of a random set", MeasureUnit::kShare}};
  const double step = 1.0 / kSegments;
  info.charts = {{"time",
                  "Heavy-hitter overlap over the generation",
                  {"end of the segment (% of the generation)", false, true},
                  {"overlap (%)", false, true},
                  even_grid(step, step, 1),
                  {"with the prompt's", "with those of the part before", "random set"},
                  {"random set"}}};
  info.prompt_rows = true;
  info.finding = finding;
  info.start = [](const HeadContext& context) -> std::unique_ptr<HeadAnalysis> {
    return std::make_unique<OverlapOfHead>(context);
  };
  return info;
}

}  // namespace kvroof
