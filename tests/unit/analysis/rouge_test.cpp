// ROUGE against values counted by hand; tests/e2e/rouge_package.py compares with the package itself.
#include "analysis/rouge.hpp"

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

void check_score(const RougeScore& score, double precision, double recall) {
  CHECK(score.precision == Approx(precision));
  CHECK(score.recall == Approx(recall));
  const double sum = precision + recall;
  CHECK(score.f1 == Approx(sum > 0 ? 2 * precision * recall / sum : 0));
}

}  // namespace

TEST_CASE("ROUGE counts common words, common pairs and the longest common subsequence") {
  // The example of Lin 2004, section 3.1: 3 of 4 words, LCS police … the gunman.
  const Rouge first = rouge("police kill the gunman", "police killed the gunman");
  check_score(first.rouge1, 3.0 / 4, 3.0 / 4);
  check_score(first.rouge2, 1.0 / 3, 1.0 / 3);  // the gunman
  check_score(first.rougeL, 3.0 / 4, 3.0 / 4);
  // The same words in another order keep the pair and lose the order: LCS is "the gunman" alone.
  const Rouge second = rouge("the gunman kill police", "police killed the gunman");
  check_score(second.rouge1, 3.0 / 4, 3.0 / 4);
  check_score(second.rouge2, 1.0 / 3, 1.0 / 3);
  check_score(second.rougeL, 2.0 / 4, 2.0 / 4);
}

TEST_CASE("A word counts as often as both texts have it") {
  // "the" 3 times against 2: 2 common; "cat" once. Pairs: the·the 2 against 0, the·cat 1 against 1.
  const Rouge r = rouge("the the the cat", "the cat saw the dog");
  check_score(r.rouge1, 3.0 / 4, 3.0 / 5);
  check_score(r.rouge2, 1.0 / 3, 1.0 / 4);
  check_score(r.rougeL, 2.0 / 4, 2.0 / 5);  // the cat
}

TEST_CASE("Words are lower-cased ASCII letters and digits, everything else separates them") {
  const Rouge same = rouge("It's 3-D:\tHello,\n WORLD", "it s 3 d hello world");
  check_score(same.rouge1, 1, 1);
  check_score(same.rougeL, 1, 1);
  check_score(rouge("na\u00efve", "na ve").rouge1, 1, 1);
  // The two characters outside ASCII whose lower case begins with an ASCII letter.
  check_score(rouge("\u212aelvin", "kelvin").rouge1, 1, 1);
  check_score(rouge("\u0130stanbul", "i stanbul").rouge1, 1, 1);
  check_score(rouge("running", "run").rouge1, 0, 0);  // no stemming
}

TEST_CASE("A text without words scores zero, and one word has no pairs") {
  for (const auto& [text, reference] :
       {std::pair("", "word"), std::pair("word", ""), std::pair("", ""), std::pair("…", "…")}) {
    const Rouge r = rouge(text, reference);
    check_score(r.rouge1, 0, 0);
    check_score(r.rouge2, 0, 0);
    check_score(r.rougeL, 0, 0);
  }
  const Rouge one = rouge("word", "word");
  check_score(one.rouge1, 1, 1);
  check_score(one.rouge2, 0, 0);
}

TEST_CASE("Of several references each ROUGE takes the one with the largest F1, with its precision and recall") {
  const std::vector<std::string> references = {"a b", "b a c d", "x"};
  const Rouge best = best_rouge("a b c d", references);
  // Against "a b": 2/4 and 2/2 for words, 1/3 and 1/1 for pairs, 2/4 and 2/2 for the subsequence: F1 2/3, 1/2, 2/3.
  // Against "b a c d": 4/4 and 4/4; c d alone, 1/3 and 1/3; a c d, 3/4 and 3/4.
  check_score(best.rouge1, 1, 1);
  check_score(best.rouge2, 1.0 / 3, 1);
  check_score(best.rougeL, 3.0 / 4, 3.0 / 4);
  check_score(best_rouge("a b c d", std::vector<std::string>{"x"}).rouge1, 0, 0);
}
