#include "kernels/tokenizer/unicode.hpp"

#include <algorithm>
#include <vector>

namespace kvroof {
namespace {

constexpr std::uint32_t kCodePoints = 0x110000;
constexpr char32_t kSharadaSandhi = 0x111C9;  // punctuation until Unicode 10, a mark since

// One byte a code point: 1.1 MB, of which a text touches a few pages.
std::vector<Category> expand_categories() {
  std::vector<Category> table(kCodePoints);
  const auto runs = unicode_category_runs();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::uint32_t first = runs[i] >> 5;
    const std::uint32_t end = i + 1 < runs.size() ? runs[i + 1] >> 5 : kCodePoints;
    std::fill(table.begin() + first, table.begin() + end, static_cast<Category>(runs[i] & 31U));
  }
  return table;
}

// Bounds are the first and last code points of runs, in order.
bool is_in_runs(std::span<const char32_t> bounds, char32_t code_point) {
  const auto above = std::upper_bound(bounds.begin(), bounds.end(), code_point);
  const bool inside = (above - bounds.begin()) % 2 == 1;
  return inside || (above != bounds.begin() && *(above - 1) == code_point);
}

struct LeadByte {
  std::uint32_t length;    // of the whole sequence; 0: cannot begin one
  std::uint8_t low, high;  // allowed range of the second byte
};

// Table 3-7 of the Unicode standard, "Well-Formed UTF-8 Byte Sequences".
constexpr LeadByte lead_byte(std::uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Category category_of(char32_t code_point) {
  static const std::vector<Category> table = expand_categories();
  return code_point < kCodePoints ? table[code_point] : Category::kCn;
}

bool is_white_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= 0x09 && code_point <= 0x0D);
  const Category c = category_of(code_point);
  return code_point == 0x85 || (c >= Category::kZs && c <= Category::kZp);
}

bool is_word_character(char32_t c) {
  const Category category = category_of(c);
  if (is_letter(category) || is_mark(category)) return true;
  if (category == Category::kNd || category == Category::kNl || category == Category::kPc) return true;
  if (c == 0x200C || c == 0x200D) return true;
  // Alphabetic characters that are neither letters, marks nor numbers: circled and squared Latin letters.
  constexpr char32_t kAlphabeticSymbols[] = {0x24B6, 0x24E9, 0x1F130, 0x1F149, 0x1F150, 0x1F169, 0x1F170, 0x1F189};
  return is_in_runs(kAlphabeticSymbols, c);
}

bool is_strippable_mark(char32_t c) {
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // letters since Unicode 12: VEDIC SIGN ARDHAVISARGA and its rotation
  return is_mark(category_of(c)) && c != kSharadaSandhi && !is_late_in_normal_forms(c);
}

bool is_splitting_number(char32_t c) {
  constexpr char32_t kSinceUnicode17[] = {0x11DE0, 0x11DE9, 0x16FF4, 0x16FF6};
  return is_number(category_of(c)) || is_in_runs(kSinceUnicode17, c);
}

bool is_splitting_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7F && !is_letter(category_of(c)) && !is_number(category_of(c));
  constexpr char32_t kCanadianSyllabicsChi = 0x166D;  // a symbol since Unicode 12
  if (c == kCanadianSyllabicsChi || c == kSharadaSandhi) return true;
  return is_punctuation(category_of(c)) && !is_in_runs(unicode_late_punctuation(), c);
}

bool is_late_in_normal_forms(char32_t c) { return is_in_runs(unicode_late_in_normal_forms(), c); }

Utf8Sequence read_long_utf8(std::string_view bytes, std::size_t at) {
  using Kind = Utf8Sequence::Kind;
  constexpr char32_t kReplacement = 0xFFFD;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[at + i]); };
  const LeadByte lead = lead_byte(byte(0));
  if (lead.length == 1) return {Kind::kValid, 1, byte(0)};
  if (lead.length == 0) return {Kind::kInvalid, 1, kReplacement};
  char32_t value = byte(0) & (0x7FU >> lead.length);
  for (std::uint32_t i = 1; i < lead.length; ++i) {
    if (at + i == bytes.size()) return {Kind::kIncomplete, i, kReplacement};
    const std::uint8_t low = i == 1 ? lead.low : 0x80;
    const std::uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Kind::kInvalid, i, kReplacement};
    value = value << 6 | (byte(i) & 0x3FU);
  }
  return {Kind::kValid, lead.length, value};
}

void append_utf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<std::uint8_t>(byte))); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::size_t append_valid_utf8(std::string_view bytes, bool at_end, std::string& out) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Sequence s = read_utf8(bytes, at);
    if (s.kind == Utf8Sequence::Kind::kIncomplete && !at_end) break;
    if (s.kind == Utf8Sequence::Kind::kValid) {
      out.append(bytes, at, s.length);
    } else {
      append_utf8(s.code_point, out);
    }
    at += s.length;
  }
  return at;
}

bool is_valid_utf8(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Sequence s = read_utf8(bytes, at);
    if (s.kind != Utf8Sequence::Kind::kValid) return false;
    at += s.length;
  }
  return true;
}

std::size_t white_space_before(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    std::size_t begin = end - 1;
    while (begin > limit && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80) --begin;
    if (!is_white_space(read_utf8(text, begin).code_point)) break;
    end = begin;
  }
  return end;
}

std::size_t white_space_after(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Sequence c = read_utf8(text, at);
    if (!is_white_space(c.code_point)) break;
    at += c.length;
  }
  return at;
}

}  // namespace kvroof
