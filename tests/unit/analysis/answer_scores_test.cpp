// Scores of answers against values worked out by hand.
#include "analysis/answer_scores.hpp"

#include <vector>

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

using References = std::vector<std::string>;

AnswerScores scores(const std::string& answer, const References& references) {
  return answer_scores(answer, references);
}

// Whether both are the same once they are normalised; `normal` is as it is.
bool equals(const std::string& answer, const std::string& normal) { return scores(answer, {normal}).exact == 1; }

}  // namespace

TEST_CASE("An answer is normalised as SQuAD v1.1 does: case, punctuation, articles and white space go") {
  CHECK(equals("  The  Cat,\tsat on\na MAT!  ", "cat sat on mat"));
  CHECK(equals("It's 3.5-fold (an_other)", "its 35fold another"));  // punctuation leaves no blank
  CHECK(equals("Theatre, band and antenna", "theatre band and antenna"));  // articles are whole words
  CHECK(equals("A, an; the.", ""));
  CHECK_FALSE(equals("cats", "cat"));
  CHECK(equals("t.h.e end", "end"));  // punctuation goes before articles
  CHECK(equals("caf\u00e9\u00a0the \u00c9cole", "caf\u00e9 \u00c9cole"));  // ASCII has its case lowered
  // A boundary of words is where letters and digits end, and an article leaves a blank: \b(a|an|the)\b.
  CHECK(equals("\u201cthe end\u201d \u2014an\u2014 x", "\u201c end\u201d \u2014 \u2014 x"));
  CHECK(equals("\u00e9a a\u00e9", "\u00e9a a\u00e9"));
}

TEST_CASE("F1 counts each common word as often as both have it, and the best reference counts") {
  // Common: new, york (once of twice). Precision 2/3, recall 2/2.
  CHECK(scores("New York, York", {"the new york"}).f1 == Approx(0.8));
  // Against "york": 1/3 and 1/1, which is 0.5; against "new york city hall": 2/3 and 2/4, which is 4/7.
  CHECK(scores("New York, York", {"york", "new york city hall", "none"}).f1 == Approx(4.0 / 7));
  CHECK(scores("b a c", {"c b"}).f1 == 1);  // in whatever order
  CHECK(scores("b a c", {"c b"}).exact == 0);
  CHECK(scores("x", {"y"}).f1 == 0);
  CHECK(scores("the", {"x"}).f1 == 0);
  CHECK(scores("the", {"a"}).f1 == 0);  // no word in common, as v1.1 has it
}

TEST_CASE("An answer is exact when it equals one of the references once both are normalised") {
  CHECK(scores("The Eiffel-Tower.", {"tower", "a eiffeltower"}).exact == 1);
  CHECK(scores("eiffel tower", {"eiffeltower"}).exact == 0);
  CHECK(scores("eiffel tower 2", {"eiffel tower"}).exact == 0);
  CHECK(scores("the", {"a"}).exact == 1);  // both are empty
}

TEST_CASE("What an answer contains is a share of its references, or whether it is any, as RULER matches parts") {
  const AnswerScores some = scores("The keys are 12345 and ALPHA.", {"2345", "alpha", "keys  are", "gamma"});
  CHECK(some.contains == 0.5);  // 2345 within 12345, and alpha in another case; blanks count
  CHECK(some.contains_any == 1);
  const AnswerScores none = scores("nothing", {"2345", "alpha"});
  CHECK(none.contains == 0);
  CHECK(none.contains_any == 0);
  CHECK(scores("is it b?", {"B"}).contains == 1);
  CHECK(scores("is it b?", {"c", "B"}).contains_any == 1);
}
