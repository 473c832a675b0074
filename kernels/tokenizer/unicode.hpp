// UTF-8 and the Unicode general categories that tokenizers split text by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvroof {

// General categories under their two-letter names in the Unicode standard (Cn: unassigned).
enum class Category : std::uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
};

// The category of a code point; above U+10FFFF unassigned.
[[nodiscard]] Category category_of(char32_t code_point);

[[nodiscard]] constexpr bool is_letter(Category c) { return c >= Category::kLu && c <= Category::kLo; }
[[nodiscard]] constexpr bool is_number(Category c) { return c >= Category::kNd && c <= Category::kNo; }
[[nodiscard]] constexpr bool is_mark(Category c) { return c >= Category::kMn && c <= Category::kMe; }
[[nodiscard]] constexpr bool is_punctuation(Category c) { return c >= Category::kPc && c <= Category::kPo; }

// The property White_Space: separators, the controls U+0009 … U+000D and U+0085.
[[nodiscard]] bool is_white_space(char32_t code_point);

// A character of a word (\w) by Unicode Technical Standard 18, annex C: Alphabetic, marks, decimal numbers, connector
// punctuation and the joiners U+200C and U+200D.
[[nodiscard]] bool is_word_character(char32_t code_point);

// Punctuation as the reference library's pre-tokenizers have it: ASCII punctuation and symbols, and the classes P of
// Unicode 8, the version that it takes them from.
[[nodiscard]] bool is_splitting_punctuation(char32_t code_point);

// A mark by Unicode 9, which is what StripAccents takes away.
[[nodiscard]] bool is_strippable_mark(char32_t code_point);

// A number (Nd, Nl, No) by Unicode 17, which is what Digits cuts at.
[[nodiscard]] bool is_splitting_number(char32_t code_point);

// A mark, or part of a decomposition, that came after Unicode 9: the reference library's normal forms leave it alone.
[[nodiscard]] bool is_late_in_normal_forms(char32_t code_point);

// What the first bytes of a text are. An invalid sequence is a maximal one (Unicode 16, section 3.9, "U+FFFD
// Substitution of Maximal Subparts"): the bytes that one U+FFFD stands for.
struct Utf8Sequence {
  enum class Kind : std::uint8_t { kValid, kInvalid, kIncomplete };
  Kind kind;             // incomplete: the bytes end inside a sequence that is valid so far
  std::uint32_t length;  // bytes, 1 … 4
  char32_t code_point;   // U+FFFD unless valid
};

// Reads the sequence that begins at bytes[at]; at < bytes.size().
[[nodiscard]] Utf8Sequence read_long_utf8(std::string_view bytes, std::size_t at);
[[nodiscard]] inline Utf8Sequence read_utf8(std::string_view bytes, std::size_t at) {
  const auto first = static_cast<std::uint8_t>(bytes[at]);
  return first < 0x80 ? Utf8Sequence{Utf8Sequence::Kind::kValid, 1, first} : read_long_utf8(bytes, at);
}

// Appends the UTF-8 form of a code point (at most U+10FFFF).
void append_utf8(char32_t code_point, std::string& out);

// Appends bytes with U+FFFD for each invalid sequence. An incomplete sequence at the end counts as invalid when
// at_end, else it is left alone. Returns the number of bytes taken.
std::size_t append_valid_utf8(std::string_view bytes, bool at_end, std::string& out);

[[nodiscard]] bool is_valid_utf8(std::string_view bytes);

// In valid UTF-8: where the white space that ends at `end` begins, not before `limit`, and where that at `at` ends.
[[nodiscard]] std::size_t white_space_before(std::string_view text, std::size_t end, std::size_t limit);
[[nodiscard]] std::size_t white_space_after(std::string_view text, std::size_t at);

// The tables behind the functions above, sorted (unicode_tables.cpp): first code point of a run · 32 + category, and
// first and last code points of runs.
[[nodiscard]] std::span<const std::uint32_t> unicode_category_runs();
[[nodiscard]] std::span<const char32_t> unicode_late_punctuation();
[[nodiscard]] std::span<const char32_t> unicode_late_in_normal_forms();

}  // namespace kvroof
