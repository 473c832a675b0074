// Normal forms of Unicode Standard Annex 15, in the version that the reference library has.
#include "kernels/tokenizer/normal_form.hpp"

#include <string>

#include "kernels/tokenizer/unicode.hpp"
#include "tests/catch.hpp"

using kvroof::NormalForm;
using kvroof::to_lower_case;
using kvroof::to_normal_form;

TEST_CASE("the examples of annex 15 have their normal forms") {
  // Figure 6: ﬁ, 2⁵ and long s with a dot below and above.
  CHECK(to_normal_form("\uFB01", NormalForm::kNfc) == "\uFB01");
  CHECK(to_normal_form("\uFB01", NormalForm::kNfkd) == "fi");
  CHECK(to_normal_form("2\u2075", NormalForm::kNfkc) == "25");
  CHECK(to_normal_form("\u1E9B\u0323", NormalForm::kNfd) == "\u017F\u0323\u0307");
  CHECK(to_normal_form("\u1E9B\u0323", NormalForm::kNfc) == "\u1E9B\u0323");
  CHECK(to_normal_form("\u1E9B\u0323", NormalForm::kNfkd) == "s\u0323\u0307");
  CHECK(to_normal_form("\u1E9B\u0323", NormalForm::kNfkc) == "\u1E69");
  // Figure 5: d with dots; figure 3: singletons and Hangul.
  CHECK(to_normal_form("d\u0307\u0323", NormalForm::kNfc) == "\u1E0D\u0307");
  CHECK(to_normal_form("\u212B\u2126", NormalForm::kNfc) == "\u00C5\u03A9");
  CHECK(to_normal_form("\u1112\u1161\u11AB", NormalForm::kNfc) == "\uD55C");
}

TEST_CASE("a mark joins the ASCII letter before it, wherever the text around needs no change") {
  CHECK(to_normal_form("plain e\u0301 plain e\u0301", NormalForm::kNfc) == "plain \u00E9 plain \u00E9");
  CHECK(to_normal_form("e\u0301", NormalForm::kNfc) == "\u00E9");
  CHECK(to_normal_form("\u0301e", NormalForm::kNfc) == "\u0301e");
  CHECK(to_normal_form("", NormalForm::kNfkc).empty());
  CHECK(to_normal_form(std::string("a\0e\u0301", 5), NormalForm::kNfc) == std::string("a\0\u00E9", 4));
}

TEST_CASE("the form of a text is the form of its pieces put together, cut before ASCII letters") {
  const std::string part = "x\u00E9e\u0301\u0323\uFB01\u1112\u1161";
  for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    const std::string once = to_normal_form(part, form);
    CHECK(to_normal_form(part + part, form) == once + once);
    CHECK(to_normal_form(once, form) == once);
  }
}

TEST_CASE("characters that came after Unicode 9 keep their place and their form") {
  // U+0898 has the combining class 230 and would go behind the dot below, were it known.
  CHECK(to_normal_form("a\u0898\u0323", NormalForm::kNfd) == "a\u0898\u0323");
  CHECK(to_normal_form("\U00011935\U00011930", NormalForm::kNfc) == "\U00011935\U00011930");  // would compose
  CHECK(to_normal_form("\U0001FBF1", NormalForm::kNfkc) == "\U0001FBF1");                     // would become 1
  CHECK(to_normal_form("\u0898e\u0301", NormalForm::kNfc) == "\u0898\u00E9");
}

TEST_CASE("lower case goes character by character") {
  CHECK(to_lower_case("ΑΣ ΑΣ.") == "ασ ασ.");
  CHECK(to_lower_case("\u0130I") == "i\u0307i");
  CHECK(to_lower_case("ǅß") == "ǆß");
}

TEST_CASE("word characters are those of Unicode Technical Standard 18") {
  for (const char32_t c : {U'a', U'中', U'\u0301', U'٣', U'Ⅷ', U'_', U'ⓐ', U'\u200D'})
    CHECK(kvroof::is_word_character(c));
  for (const char32_t c : {U'²', U'½', U'-', U' ', U'\u200B', U'😀'}) CHECK_FALSE(kvroof::is_word_character(c));
}

TEST_CASE("splitting punctuation is ASCII symbols and the classes P of Unicode 8") {
  for (const char32_t c : {U'$', U'+', U'`', U'~', U'.', U'_', U'…', U'。', U'\u166D', U'\U000111C9'}) {
    CHECK(kvroof::is_splitting_punctuation(c));
  }
  for (const char32_t c : {U'€', U'a', U'1', U' ', U'\x7F', U'\u2E43', U'\u1B4E'}) {  // the last two came later
    CHECK_FALSE(kvroof::is_splitting_punctuation(c));
  }
}

TEST_CASE("marks that are stripped are those of Unicode 9, numbers that are cut at those of Unicode 17") {
  for (const char32_t c : {U'\u0301', U'\u093F', U'\u1CF2'}) CHECK(kvroof::is_strippable_mark(c));
  for (const char32_t c : {U'a', U'\u0898', U'\U000111C9'}) CHECK_FALSE(kvroof::is_strippable_mark(c));
  for (const char32_t c : {U'1', U'²', U'Ⅷ', U'\U00011DE0'}) CHECK(kvroof::is_splitting_number(c));
  for (const char32_t c : {U'a', U'一'}) CHECK_FALSE(kvroof::is_splitting_number(c));
}
