#include "kernels/tokenizer/scanners.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

enum class CharClass : std::uint8_t { kLetter, kNumber, kSpace, kOther };

CharClass classify(char32_t code_point) {
  if (is_white_space(code_point)) return CharClass::kSpace;
  const Category c = category_of(code_point);
  if (is_letter(c)) return CharClass::kLetter;
  return is_number(c) ? CharClass::kNumber : CharClass::kOther;
}

constexpr CharClass ascii_class(std::uint8_t c) {
  if (c == ' ' || (c >= 0x09 && c <= 0x0D)) return CharClass::kSpace;
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::kLetter;
  return c >= '0' && c <= '9' ? CharClass::kNumber : CharClass::kOther;
}

constexpr std::array<CharClass, 128> kAsciiClasses = [] {
  std::array<CharClass, 128> classes{};
  for (std::uint8_t c = 0; c < 128; ++c) classes[c] = ascii_class(c);
  return classes;
}();

struct Char {
  CharClass kind;
  std::uint32_t length;
};

Char char_at(std::string_view text, std::size_t at) {
  const auto byte = static_cast<std::uint8_t>(text[at]);
  if (byte < 128) return {kAsciiClasses[byte], 1};
  const Utf8Sequence s = read_utf8(text, at);
  return {classify(s.code_point), s.length};
}

bool is_line_break(char c) { return c == '\r' || c == '\n'; }

struct Run {
  std::size_t end;
  std::size_t last;  // where its last character begins
};

Run run_of(CharClass kind, std::string_view text, std::size_t at) {
  Run run{at, at};
  while (run.end < text.size()) {
    const Char c = char_at(text, run.end);
    if (c.kind != kind) break;
    run.last = run.end;
    run.end += c.length;
  }
  return run;
}

// Whether text[at] is a character of the class, and where it ends.
bool is_at(CharClass kind, std::string_view text, std::size_t at) {
  return at < text.size() && char_at(text, at).kind == kind;
}

// \s+(?!\S)|\s+: white space before something else leaves its last character to what follows, unless it has only one.
std::size_t white_space_end(std::string_view text, std::size_t at) {
  const Run run = run_of(CharClass::kSpace, text, at);
  return run.end == text.size() || run.last == at ? run.end : run.last;
}

// The end of 's|'t|'re|'ve|'m|'ll|'d at text[at], `at` when there is none.
std::size_t contraction_end(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at, 3);
  if (rest.size() < 2 || rest[0] != '\'') return at;
  if (rest[1] == 's' || rest[1] == 't' || rest[1] == 'm' || rest[1] == 'd') return at + 2;
  return rest == "'re" || rest == "'ve" || rest == "'ll" ? at + 3 : at;
}

// The same in any case: (?i:'s|'t|'re|'ve|'m|'ll|'d). The long s U+017F folds to s.
std::size_t any_case_contraction_end(std::string_view text, std::size_t at) {
  if (text[at] != '\'' || at + 1 == text.size()) return at;
  if (text.substr(at + 1, 2) == "\u017F") return at + 3;
  char folded[3] = {'\'', 0, 0};
  for (std::size_t i = 1; i < 3 && at + i < text.size(); ++i) {
    const char c = text[at + i];
    folded[i] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return at + contraction_end(std::string_view(folded, 3), 0);
}

// GPT-2.
Match scan_gpt2(std::string_view text, std::size_t at) {
  if (const std::size_t end = contraction_end(text, at); end != at) return {at, end};
  const Char first = char_at(text, at);
  if (first.kind != CharClass::kSpace) return {at, run_of(first.kind, text, at).end};
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Char next = char_at(text, at + 1);
    if (next.kind != CharClass::kSpace) return {at, run_of(next.kind, text, at + 1).end};
  }
  return {at, white_space_end(text, at)};
}

// Up to `most` numbers.
std::size_t numbers_end(std::string_view text, std::size_t at, int most) {
  for (int i = 0; i < most && is_at(CharClass::kNumber, text, at); ++i) at += char_at(text, at).length;
  return at;
}

// What the families after GPT-2 share behind their words and numbers, T being what may follow punctuation:
//   ?[^\s\p{L}\p{N}]+[T]*|\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t symbols_or_space_end(std::string_view text, std::size_t at, std::string_view trailing) {
  const std::size_t symbols = text[at] == ' ' ? at + 1 : at;
  if (is_at(CharClass::kOther, text, symbols)) {
    const std::size_t end = run_of(CharClass::kOther, text, symbols).end;
    return std::min(text.find_first_not_of(trailing, end), text.size());
  }
  const std::size_t end = run_of(CharClass::kSpace, text, at).end;
  const std::size_t line_break = text.substr(at, end - at).find_last_of("\r\n");
  return line_break == std::string_view::npos ? white_space_end(text, at) : at + line_break + 1;
}

// LLaMA-3, Qwen2 and others; they differ in how many digits go together.
template <int kDigits>
Match scan_llama3(std::string_view text, std::size_t at) {
  if (const std::size_t end = any_case_contraction_end(text, at); end != at) return {at, end};
  const Char first = char_at(text, at);
  if (first.kind == CharClass::kLetter) return {at, run_of(CharClass::kLetter, text, at).end};
  if (first.kind == CharClass::kNumber) return {at, numbers_end(text, at, kDigits)};
  if (!is_line_break(text[at]) && is_at(CharClass::kLetter, text, at + first.length)) {
    return {at, run_of(CharClass::kLetter, text, at + first.length).end};
  }
  return {at, symbols_or_space_end(text, at, "\r\n")};
}

// The sets [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and [\p{Ll}\p{Lm}\p{Lo}\p{M}].
bool is_upper_or_neutral(char32_t c) {
  const Category category = category_of(c);
  return (is_letter(category) && category != Category::kLl) || is_mark(category);
}
bool is_lower_or_neutral(char32_t c) {
  const Category category = category_of(c);
  return category == Category::kLl || category == Category::kLm || category == Category::kLo || is_mark(category);
}

std::size_t run_while(bool (*holds)(char32_t), std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Sequence c = read_utf8(text, at);
    if (!holds(c.code_point)) break;
    at += c.length;
  }
  return at;
}

// [upper]*[lower]+ at text[at]; `at` when it does not match. When nothing lower follows the upper run, the run gives
// back as few characters as it must: down to the last that is in both sets.
std::size_t capitalised_end(std::string_view text, std::size_t at) {
  std::size_t end_of_both = at;
  std::size_t upper_end = at;
  while (upper_end < text.size()) {
    const Utf8Sequence c = read_utf8(text, upper_end);
    if (!is_upper_or_neutral(c.code_point)) break;
    upper_end += c.length;
    if (is_lower_or_neutral(c.code_point)) end_of_both = upper_end;
  }
  const std::size_t end = run_while(is_lower_or_neutral, text, upper_end);
  return end > upper_end ? end : end_of_both;
}

// [upper]+[lower]* at text[at]; `at` when it does not match.
std::size_t upper_end(std::string_view text, std::size_t at) {
  const std::size_t end = run_while(is_upper_or_neutral, text, at);
  return end == at ? at : run_while(is_lower_or_neutral, text, end);
}

// The word of o200k and tekken at text[at], with at most one character before it that is no line break, letter or
// number; `at` when there is none.
std::size_t cased_word_end(std::string_view text, std::size_t at) {
  const Char first = char_at(text, at);
  const bool may_precede =
      first.kind != CharClass::kLetter && first.kind != CharClass::kNumber && !is_line_break(text[at]);
  const std::size_t after = at + first.length;
  for (const auto word_end : {capitalised_end, upper_end}) {
    if (may_precede && after < text.size()) {
      if (const std::size_t end = word_end(text, after); end != after) return end;
    }
    if (const std::size_t end = word_end(text, at); end != at) return end;
  }
  return at;
}

// o200k (GPT-4o, gpt-oss, LLaMA-4) takes contractions with their word and three digits; tekken (Mistral NeMo) neither.
template <bool kContractions, int kDigits>
Match scan_cased(std::string_view text, std::size_t at) {
  if (const std::size_t end = cased_word_end(text, at); end != at) {
    return {at, kContractions && end < text.size() ? any_case_contraction_end(text, end) : end};
  }
  if (is_at(CharClass::kNumber, text, at)) return {at, numbers_end(text, at, kDigits)};
  return {at, symbols_or_space_end(text, at, "\r\n/")};
}

// BLOOM: runs outside a set with at most one space before them. The inner brackets of the expression open and close a
// nested class; parentheses and bar are characters of the set.
bool is_bloom_word(char32_t c) {
  constexpr std::u32string_view kOutside = U"(|.,!?…。，、।۔،)";
  return !is_white_space(c) && kOutside.find(c) == std::u32string_view::npos;
}

Match scan_bloom(std::string_view text, std::size_t at) {
  for (std::size_t begin = at; begin < text.size();) {
    const std::size_t word = text[begin] == ' ' ? begin + 1 : begin;
    const std::size_t end = run_while(is_bloom_word, text, word);
    if (end > word) return {begin, end};
    begin += read_utf8(text, begin).length;
  }
  return {text.size(), text.size()};
}

// Falcon cuts digits in threes.
Match scan_three_digits(std::string_view text, std::size_t at) {
  const auto is_digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
  for (; at + 3 <= text.size(); ++at) {
    if (is_digit(at) && is_digit(at + 1) && is_digit(at + 2)) return {at, at + 3};
  }
  return {text.size(), text.size()};
}

struct Row {
  std::string_view expression;
  Scanner scanner;
};

// What tokenizer.json files have; one line an expression.
constexpr Row kRows[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", scan_gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scan_llama3<3>},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
     R"(|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scan_llama3<1>},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
     R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scan_cased<true, 3>},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     scan_cased<false, 1>},
    {R"( ?[^(\s|[.,!?…。，、।۔،])]+)", scan_bloom},
    {"[0-9][0-9][0-9]", scan_three_digits},
};

}  // namespace

Scanner scanner_of(std::string_view expression) {
  const auto row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.expression == expression; });
  return row == std::end(kRows) ? nullptr : row->scanner;
}

std::string_view gpt2_expression() { return kRows[0].expression; }

}  // namespace kvroof
