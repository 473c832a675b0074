#include "kernels/tokenizer/unicode.hpp"

#include <algorithm>
#include <vector>

namespace kvroof {
namespace {

constexpr std::uint32_t kCodePoints = 0x110000;

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

struct LeadByte {
  std::uint32_t length;         // of the whole sequence; 0: cannot begin one
  std::uint8_t low, high;       // allowed range of the second byte
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

Utf8Sequence read_utf8(std::string_view bytes, std::size_t at) {
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

}  // namespace kvroof
