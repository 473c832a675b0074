#include "apps/eval/eval_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/values.hpp"
#include "sim/core/error.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

template <RougeScore Rouge::* kPart, double RougeScore::* kValue>
double rouge_value(const AnswerScore& score) {
  return score.rouge.*kPart.*kValue;
}

template <double AnswerScores::* kValue>
double match_value(const AnswerScore& score) {
  return score.match.*kValue;
}

const std::vector<AnswerMetric>& metric_table() {
  static const std::vector<AnswerMetric> table = {
      {"rouge",
       "ROUGE: F1 of words, of pairs of words and of the longest common subsequence",
       {{"ROUGE-1 F1", "rouge1_f1", rouge_value<&Rouge::rouge1, &RougeScore::f1>},
        {"", "rouge1_precision", rouge_value<&Rouge::rouge1, &RougeScore::precision>},
        {"", "rouge1_recall", rouge_value<&Rouge::rouge1, &RougeScore::recall>},
        {"ROUGE-2 F1", "rouge2_f1", rouge_value<&Rouge::rouge2, &RougeScore::f1>},
        {"", "rouge2_precision", rouge_value<&Rouge::rouge2, &RougeScore::precision>},
        {"", "rouge2_recall", rouge_value<&Rouge::rouge2, &RougeScore::recall>},
        {"ROUGE-L F1", "rougeL_f1", rouge_value<&Rouge::rougeL, &RougeScore::f1>},
        {"", "rougeL_precision", rouge_value<&Rouge::rougeL, &RougeScore::precision>},
        {"", "rougeL_recall", rouge_value<&Rouge::rougeL, &RougeScore::recall>}}},
      {"f1",
       "F1: of words without case, punctuation and articles, as SQuAD and LongBench have it",
       {{"F1", "f1", match_value<&AnswerScores::f1>}}},
      {"exact",
       "exact: answers that are a reference but for case, punctuation, articles and blanks (SQuAD)",
       {{"exact", "exact", match_value<&AnswerScores::exact>}}},
      {"contains",
       "contains: share of a prompt's references that stand in its answer, in whatever case (RULER, string_match_all)",
       {{"contains", "contains", match_value<&AnswerScores::contains>}}},
      {"contains-any",
       "contains any: answers in which at least one reference stands (RULER, string_match_part)",
       {{"contains any", "contains_any", match_value<&AnswerScores::contains_any>}}},
  };
  return table;
}

}  // namespace

AnswerScore score_answer(std::string_view answer, std::span<const std::string> references) {
  return {best_rouge(answer, references), answer_scores(answer, references)};
}

std::vector<const AnswerMetric*> answer_metrics(const std::string& names) {
  std::vector<std::string> known;
  for (const AnswerMetric& metric : metric_table()) known.emplace_back(metric.name);
  std::vector<const AnswerMetric*> metrics;
  for (const std::string& name : split_list("metric", names)) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      throw usage_error(
          fmt::format("--metric {}: expected a list of {}{}", name, join(known), did_you_mean(name, known)));
    }
    metrics.push_back(&metric_table()[static_cast<std::size_t>(found - known.begin())]);
  }
  return metrics;
}

}  // namespace kvroof
