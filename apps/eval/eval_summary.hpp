// Means over the examples of `kvroof eval`.
#pragma once

#include "analysis/perplexity.hpp"
#include "apps/eval/eval_tasks.hpp"

namespace kvroof {

TextScore text_score(const TextExamples& text, const EvalPoint& point);
// Of nats a token against full attention, over all counted tokens.
PairedDifference difference(const EvalPoint& point, const EvalPoint& full);

// Over all questions.
double mean_of(const EvalPoint& point, const AnswerColumn& column);
// [turns]: over those that are the first of their line, the second …
std::vector<double> means_by_turn(const AnswerExamples& examples, const EvalPoint& point, const AnswerColumn& column);
// Against full attention, question by question; those of a line share a context, and are no samples of their own.
PairedDifference difference(const AnswerExamples& examples, const EvalPoint& point, const EvalPoint& full,
                            const AnswerColumn& column);

// A share of examples, and how far it is from that of full attention, example by example.
struct ShareSummary {
  double share = 0;
  std::optional<double> standard_error;  // √(p (1 − p) / (n − 1)) of n examples; one example has none
  PairedDifference change;
};
// 1 or 0 of each example, at least one and the same ones in both.
ShareSummary share_summary(std::span<const double> ours, std::span<const double> full);

struct ChoiceSummary {
  ShareSummary accuracy;           // the likeliest choice is the answer
  ShareSummary accuracy_per_byte;  // the likeliest for its length is the answer
  double agreement = 0;            // questions where the likeliest choice is the one of full attention
};
ChoiceSummary choice_summary(const std::vector<ChoiceExample>& examples, const EvalPoint& point, const EvalPoint& full);

}  // namespace kvroof
