// The scores that `kvroof eval` has for a generated answer: their names in --metric, and what each gives a prompt.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/answer_scores.hpp"
#include "analysis/rouge.hpp"

namespace kvroof {

// Of one answer.
struct AnswerScore {
  Rouge rouge;
  AnswerScores match;
};

// Against the references of one prompt, at least one; each score is that of the reference where it is best.
AnswerScore score_answer(std::string_view answer, std::span<const std::string> references);

// A column of results: a number between 0 and 1 of an answer. Without a title: in JSON and CSV alone.
struct AnswerColumn {
  std::string title, key;
  double (*of)(const AnswerScore&);
};

struct AnswerMetric {
  const char* name;  // of --metric
  const char* note;  // what it is, a sentence
  std::vector<AnswerColumn> columns;
};

// The metrics of a list of names. Throws Error (usage) that lists the known ones.
std::vector<const AnswerMetric*> answer_metrics(const std::string& names);

}  // namespace kvroof
