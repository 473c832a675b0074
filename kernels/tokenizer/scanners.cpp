#include "kernels/tokenizer/scanners.hpp"

#include <array>
#include <cstdint>

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

std::array<CharClass, 128> classify_ascii() {
  std::array<CharClass, 128> classes{};
  for (char32_t c = 0; c < 128; ++c) classes[c] = classify(c);
  return classes;
}

struct Char {
  CharClass kind;
  std::uint32_t length;
};

Char char_at(std::string_view text, std::size_t at) {
  static const std::array<CharClass, 128> ascii = classify_ascii();
  const auto byte = static_cast<std::uint8_t>(text[at]);
  if (byte < 128) return {ascii[byte], 1};
  const Utf8Sequence s = read_utf8(text, at);
  return {classify(s.code_point), s.length};
}

// The length of a contraction at text[at], 0 when there is none.
std::size_t contraction_length(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at, 3);
  if (rest.size() < 2 || rest[0] != '\'') return 0;
  if (rest[1] == 's' || rest[1] == 't' || rest[1] == 'm' || rest[1] == 'd') return 2;
  return rest == "'re" || rest == "'ve" || rest == "'ll" ? 3 : 0;
}

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

}  // namespace

std::size_t gpt2_piece_end(std::string_view text, std::size_t at) {
  if (const std::size_t length = contraction_length(text, at)) return at + length;
  const Char first = char_at(text, at);
  if (first.kind != CharClass::kSpace) return run_of(first.kind, text, at).end;
  if (text[at] == ' ' && at + 1 < text.size()) {
    const Char next = char_at(text, at + 1);
    if (next.kind != CharClass::kSpace) return run_of(next.kind, text, at + 1).end;
  }
  // White space before something else leaves its last character to what follows, unless it has only one.
  const Run run = run_of(CharClass::kSpace, text, at);
  return run.end == text.size() || run.last == at ? run.end : run.last;
}

}  // namespace kvroof
