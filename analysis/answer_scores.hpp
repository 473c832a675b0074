// Scores of a short answer against references: exact match and F1 of SQuAD and LongBench, and the matches of RULER.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kvroof {

struct AnswerScores {
  double exact = 0;         // 1: equal to a reference once both are normalised
  double f1 = 0;            // of normalised words, against the reference where it is largest
  double contains = 0;      // share of the references that stand in the answer
  double contains_any = 0;  // 1: one of them does
};

// Exact match and F1 as SQuAD v1.1 evaluates (Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1): F1 of the bags of
// normalised words, the largest over the references; words are normalised to lower case, without ASCII punctuation, and
// a, an and the are none. LongBench's F1 of English questions is the same (Bai et al. 2024, arXiv:2308.14508,
// qa_f1_score). The matches are RULER's string_match_all and string_match_part (Hsieh et al. 2024, arXiv:2404.06654): a
// reference that is part of the answer, in whatever case. Upper and lower case of ASCII alone are equal. Texts are
// valid UTF-8, references at least one. An answer without words has an F1 of 0.
AnswerScores answer_scores(std::string_view answer, std::span<const std::string> references);

}  // namespace kvroof
