// Means over the examples of `kvroof eval`.
#pragma once

#include "analysis/perplexity.hpp"
#include "apps/eval/eval_tasks.hpp"

namespace kvroof {

TextScore text_score(const TextExamples& text, const EvalPoint& point);
// Of nats a token against full attention, over all counted tokens.
PairedDifference difference(const EvalPoint& point, const EvalPoint& full);

// Over all prompts.
double mean_of(const EvalPoint& point, const AnswerColumn& column);
// Against full attention, prompt by prompt.
PairedDifference difference(const EvalPoint& point, const EvalPoint& full, const AnswerColumn& column);

// One standard error of a share p of n examples: √(p (1 − p) / (n − 1)), 0 for one.
double error_of_share(double share, std::size_t examples);

struct ChoiceSummary {
  double accuracy = 0;           // the likeliest choice is the answer
  double standard_error = 0;     // of the accuracy
  double accuracy_per_byte = 0;  // the likeliest for its length is the answer
  double agreement = 0;          // questions where the likeliest choice is the one of full attention
};
ChoiceSummary choice_summary(const std::vector<ChoiceExample>& examples, const EvalPoint& point, const EvalPoint& full);

}  // namespace kvroof
