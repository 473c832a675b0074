// Hand-written scanners find what their regular expressions find, and the boundaries that are easy to miss.
#include "kernels/tokenizer/scanners.hpp"

#include <array>
#include <string>
#include <vector>

#include "kernels/tokenizer/unicode.hpp"
#include "tests/catch.hpp"

namespace {

using kvroof::Match;
using kvroof::Scanner;
using kvroof::scanner_of;

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kBloom = " ?[^(\\s|[.,!?…。，、।۔،])]+";
constexpr const char* kThreeDigits = "[0-9][0-9][0-9]";

std::vector<Match> scan(const std::string& expression, const std::string& text) {
  const Scanner scanner = scanner_of(expression);
  REQUIRE(scanner != nullptr);
  std::vector<Match> matches;
  for (std::size_t at = 0; at < text.size();) {
    const Match match = scanner(text, at);
    if (match.begin == text.size()) break;
    REQUIRE(match.begin >= at);
    REQUIRE(match.end > match.begin);
    matches.push_back(match);
    at = match.end;
  }
  return matches;
}

// The matched texts with a bar between them.
std::string pieces(const std::string& expression, const std::string& text) {
  std::string all;
  for (const Match& m : scan(expression, text)) {
    all += (all.empty() ? "" : "|") + text.substr(m.begin, m.end - m.begin);
  }
  return all;
}

// Short texts over characters of every class, near which the expressions differ.
class TextSource {
 public:
  std::string next() {
    static const std::array<const char32_t*, 12> kAlphabets = {U"aBé",
                                                               U"  \t\u00A0\u3000",
                                                               U"\r\n",
                                                               U"019²Ⅷ",
                                                               U"'sStTrReEvVlLmMdDſ",
                                                               U".,!?…。، ()[]|/",
                                                               U"ǅʰªß中",
                                                               U"\u0301\u0939\u093F",
                                                               U"ΣσΑ",
                                                               U"\u200D\uFEFF\u0000x",
                                                               U"😀€_-",
                                                               U"\U00013527\u1C89\U0002EBF0"};
    std::string text;
    for (std::uint32_t length = draw(12); length > 0; --length) {
      const std::u32string_view alphabet = kAlphabets[draw(kAlphabets.size())];
      kvroof::append_utf8(alphabet[draw(static_cast<std::uint32_t>(alphabet.size()))], text);
    }
    return text;
  }

 private:
  std::uint32_t draw(std::uint32_t below) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 33) % below;
  }
  std::uint64_t state_ = 1;
};

}  // namespace

TEST_CASE("every scanner finds the matches of Oniguruma for its expression") {
  const std::string gpt2(kvroof::gpt2_expression());
  for (const std::string& expression : {gpt2, std::string(kLlama3), std::string(kQwen2), std::string(kTekken),
                                        std::string(kO200k), std::string(kBloom), std::string(kThreeDigits)}) {
    INFO(expression);
    const auto regex = kvroof::make_regex(expression);
    TextSource source;
    for (int i = 0; i < 4000; ++i) {
      const std::string text = source.next();
      std::vector<Match> expected;
      regex->find_all(text, expected);
      if (scan(expression, text) != expected) FAIL_CHECK("text: " << text);
    }
  }
}

TEST_CASE("white space leaves its last character to the word that follows") {
  CHECK(pieces(std::string(kvroof::gpt2_expression()), "a   b  ") == "a|  | b|  ");
  CHECK(pieces(kLlama3, "a \t b") == "a| \t| b");
  CHECK(pieces(kLlama3, "a \n\n  b") == "a| \n\n| | b");
}

TEST_CASE("contractions are cut in their case only by GPT-2, in any case by LLaMA-3, kept with the word by o200k") {
  CHECK(pieces(std::string(kvroof::gpt2_expression()), "It's IT'S") == "It|'s| IT|'|S");
  CHECK(pieces(kLlama3, "It's IT'S a'ſ") == "It|'s| IT|'S| a|'ſ");
  CHECK(pieces(kO200k, "It's IT'S") == "It's| IT'S");
  CHECK(pieces(kTekken, "It's") == "It|'s");
}

TEST_CASE("digits go together without limit, in threes or alone") {
  CHECK(pieces(std::string(kvroof::gpt2_expression()), "12345") == "12345");
  CHECK(pieces(kLlama3, "12345") == "123|45");
  CHECK(pieces(kQwen2, "123") == "1|2|3");
  CHECK(pieces(kThreeDigits, "a1234567b") == "123|456");
}

TEST_CASE("case changes cut words in tekken and o200k") {
  CHECK(pieces(kTekken, "camelCase XMLHttp ABC") == "camel|Case| XMLHttp| ABC");
  CHECK(pieces(kTekken, "ABʰ1") == "ABʰ|1");  // a modifier letter is of both cases
}

TEST_CASE("BLOOM keeps brackets in words and leaves out white space and punctuation") {
  CHECK(pieces(kBloom, "a[1], (b) c") == "a[1]|b| c");
}

TEST_CASE("an expression that differs in one character has no scanner") {
  CHECK(scanner_of(std::string(kLlama3) + " ") == nullptr);
  CHECK(scanner_of("") == nullptr);
}
