// Patterns of Split and Replace: literals, characters, regular expressions and their limits.
#include "kernels/tokenizer/pattern.hpp"

#include <string>
#include <vector>

#include "tests/catch.hpp"

namespace {

using kvroof::Match;

std::vector<Match> find(const std::string& expression, const std::string& text) {
  std::vector<Match> matches;
  kvroof::make_regex(expression)->find_all(text, matches);
  return matches;
}

std::string failure(const std::string& expression, const std::string& text) {
  try {
    (void)find(expression, text);
  } catch (const kvroof::Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an empty match does not follow another match directly") {
  CHECK(find("a*", "baac") == std::vector<Match>{{0, 0}, {1, 3}, {4, 4}});
  CHECK(find("", "aé") == std::vector<Match>{{0, 0}, {1, 1}, {3, 3}});
  CHECK(find("a", "").empty());
}

TEST_CASE("classes of regular expressions are those of Unicode 16, nested and intersected") {
  CHECK(find(R"(\p{L}+)", "aé中\U00013527") == std::vector<Match>{{0, 10}});  // U+13527 came with Unicode 16
  CHECK(find(R"(\s)", "\u0085\u00A0\u3000\u200B\u180E") == std::vector<Match>{{0, 2}, {2, 4}, {4, 7}});
  CHECK(find("[a[bc]]+", "abcd") == std::vector<Match>{{0, 3}});
  CHECK(find("[a-c&&[^b]]", "abc") == std::vector<Match>{{0, 1}, {2, 3}});
  CHECK(find("(?i:s)", "sSſ") == std::vector<Match>{{0, 1}, {1, 2}, {2, 4}});
  CHECK(find("[[:punct:]]+", "$.a") == std::vector<Match>{{0, 2}});
  CHECK(find("[[:^punct:]]+", "$.a") == std::vector<Match>{{2, 3}});
}

TEST_CASE("a hostile expression ends with a sentence instead of running for ever") {
  const std::string text = std::string(60, 'a') + "b";
  CHECK_THAT(failure("(a|aa)+$", text), ContainsSubstring("steps on a text of 61 bytes"));
  CHECK_THAT(failure("(a+)+[c-z]", text), ContainsSubstring("steps"));
  CHECK(failure("(a|b)*", std::string(100'000, 'a')).empty());  // a long match is no hostile one
}

TEST_CASE("expressions that are not valid, too deep or too long are refused with the reason") {
  CHECK_THAT(failure("(a", "x"), ContainsSubstring("not valid") && ContainsSubstring("parenthesis"));
  CHECK_THAT(failure("[a", "x"), ContainsSubstring("not valid"));
  CHECK_THAT(failure(R"(\p{Nonsense})", "x"), ContainsSubstring("not valid"));
  CHECK_THAT(failure(std::string(5000, '(') + std::string(5000, ')'), "x"), ContainsSubstring("not valid"));
  CHECK_THAT(failure(std::string(70'000, 'a'), "x"), ContainsSubstring("too long"));
}

TEST_CASE("replacing puts the content in the place of every match") {
  std::vector<Match> matches;
  kvroof::make_literal("aa")->find_all("aaaxaa", matches);
  CHECK(matches == std::vector<Match>{{0, 2}, {4, 6}});
  CHECK(kvroof::replace("aaaxaa", matches, "▁") == "▁ax▁");
}
