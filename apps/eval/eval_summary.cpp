#include "apps/eval/eval_summary.hpp"

#include <cmath>
#include <numeric>

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

std::vector<double> means_by_turn(const AnswerExamples& examples, const EvalPoint& point, const AnswerColumn& column) {
  const std::vector<const AnswerExamples::Question*> questions = examples.questions();
  std::vector<double> sums(examples.turns()), counts(examples.turns());
  for (std::size_t i = 0; i < questions.size(); ++i) {
    sums[questions[i]->turn] += column.of(point.continuations[i].score);
    counts[questions[i]->turn] += 1;
  }
  for (std::size_t turn = 0; turn < sums.size(); ++turn) sums[turn] /= counts[turn];
  return sums;
}

PairedDifference difference(const AnswerExamples& examples, const EvalPoint& point, const EvalPoint& full,
                            const AnswerColumn& column) {
  std::vector<std::size_t> lines;
  for (const AnswerExamples::Prompt& prompt : examples.prompts) {
    lines.resize(lines.size() + prompt.questions.size(), prompt.line);
  }

  std::vector<double> ours, theirs;
  for (const auto& continuation : point.continuations) ours.push_back(column.of(continuation.score));
  for (const auto& continuation : full.continuations) theirs.push_back(column.of(continuation.score));
  return paired_difference(ours, theirs, lines);
}

ShareSummary share_summary(std::span<const double> ours, std::span<const double> full) {
  ShareSummary summary;
  const auto n = static_cast<double>(ours.size());
  const auto share_of = [n](std::span<const double> hits) {
    return std::accumulate(hits.begin(), hits.end(), 0.0) / n;
  };
  summary.share = share_of(ours);
  if (ours.size() > 1) summary.standard_error = std::sqrt(summary.share * (1 - summary.share) / (n - 1));
  summary.change = paired_difference(ours, full);
  summary.change.mean = summary.share - share_of(full);  // whose digits are fewer
  return summary;
}

ChoiceSummary choice_summary(const std::vector<ChoiceExample>& examples, const EvalPoint& point,
                             const EvalPoint& full) {
  const auto right = [&](const EvalPoint& of, std::size_t (*chosen)(std::span<const ChoiceScore>)) {
    std::vector<double> of_each;
    for (std::size_t i = 0; i < examples.size(); ++i) {
      of_each.push_back(chosen(of.questions[i].choices) == examples[i].answer ? 1 : 0);
    }
    return of_each;
  };
  std::size_t agreeing = 0;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    agreeing += likeliest(point.questions[i].choices) == likeliest(full.questions[i].choices) ? 1 : 0;
  }
  return {share_summary(right(point, likeliest), right(full, likeliest)),
          share_summary(right(point, likeliest_for_length), right(full, likeliest_for_length)),
          static_cast<double>(agreeing) / static_cast<double>(examples.size())};
}

}  // namespace kvroof
