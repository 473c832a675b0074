#include "traces/finite_numbers.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace kvroof {
namespace {

constexpr std::array<std::string_view, 4> kWords = {"inf", "nan", "NaN", "Infinity"};
constexpr std::size_t kLongest = std::string_view("-Infinity").size();

bool of_word(char c) { return c == '-' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void blank_out(std::span<char> token) {
  const std::string_view text(token.data(), token.size());
  const std::string_view word = text.substr(text.starts_with('-') ? 1 : 0);
  if (std::find(kWords.begin(), kWords.end(), word) == kWords.end()) return;
  std::fill(token.begin(), token.end(), ' ');
  token[0] = token[1] = '"';
}

}  // namespace

std::size_t FiniteNumbers::clean(std::span<char> piece, bool last) {
  std::size_t at = 0;
  while (at < piece.size()) {
    if (quoted_ || !of_word(piece[at])) {
      const bool quote = piece[at] == '"' && !escaped_;
      quoted_ = quoted_ != quote;
      escaped_ = quoted_ && piece[at] == '\\' && !escaped_;
      ++at;
      continue;
    }
    const auto begin = piece.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = std::find_if_not(begin, piece.end(), of_word);
    const auto length = static_cast<std::size_t>(end - begin);
    if (end == piece.end() && length <= kLongest && !last) return at;
    blank_out(std::span(begin, end));
    at += length;
  }
  return at;
}

}  // namespace kvroof
