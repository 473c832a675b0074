#include "apps/eval/eval_summary.hpp"

#include <cmath>

namespace kvroof {
namespace {

std::vector<float> all_of(const std::vector<std::vector<float>>& parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TextScore text_score(const TextExamples& text, const EvalPoint& point) {
  TextScore score;
  for (std::size_t i = 0; i < text.windows.size(); ++i) score.add(point.logprobs[i], text.windows[i].bytes);
  return score;
}

PairedDifference difference(const EvalPoint& point, const EvalPoint& full) {
  return nats_difference(all_of(point.logprobs), all_of(full.logprobs));
}

double mean_of(const EvalPoint& point, const AnswerColumn& column) {
  double mean = 0;
  const auto n = static_cast<double>(point.continuations.size());
  for (const auto& continuation : point.continuations) mean += column.of(continuation.score) / n;
  return mean;
}

PairedDifference difference(const EvalPoint& point, const EvalPoint& full, const AnswerColumn& column) {
  std::vector<double> ours, theirs;
  for (const auto& continuation : point.continuations) ours.push_back(column.of(continuation.score));
  for (const auto& continuation : full.continuations) theirs.push_back(column.of(continuation.score));
  return paired_difference(ours, theirs);
}

double error_of_share(double share, std::size_t examples) {
  return examples > 1 ? std::sqrt(share * (1 - share) / (static_cast<double>(examples) - 1)) : 0;
}

ChoiceSummary choice_summary(const std::vector<ChoiceExample>& examples, const EvalPoint& point,
                             const EvalPoint& full) {
  std::size_t right = 0, right_per_byte = 0, agreeing = 0;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const auto& choices = point.questions[i].choices;
    const std::size_t chosen = likeliest(choices);
    right += chosen == examples[i].answer ? 1 : 0;
    right_per_byte += likeliest_for_length(choices) == examples[i].answer ? 1 : 0;
    agreeing += chosen == likeliest(full.questions[i].choices) ? 1 : 0;
  }
  const auto n = static_cast<double>(examples.size());
  const auto share = [n](std::size_t count) { return static_cast<double>(count) / n; };
  ChoiceSummary summary{share(right), 0, share(right_per_byte), share(agreeing)};
  summary.standard_error = error_of_share(summary.accuracy, examples.size());
  return summary;
}

}  // namespace kvroof
