// What a part of a tokenizer looks for in text: a literal, a regular expression, or characters of one kind.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tokenizer/json_view.hpp"

namespace kvroof {

struct Match {
  std::size_t begin, end;  // bytes
  friend bool operator==(const Match&, const Match&) = default;
};

class TextPattern {
 public:
  virtual ~TextPattern() = default;
  // Appends the matches in a valid UTF-8 text from left to right. They do not overlap, and an empty one does not follow
  // another directly. Throws Error when the search takes unreasonably many steps.
  virtual void find_all(std::string_view text, std::vector<Match>& matches) const = 0;
};

// {"String": literal} or {"Regex": pattern}, as Split and Replace name what they look for.
std::unique_ptr<const TextPattern> make_pattern(const JsonView& spec);

// A text as it stands, not empty.
std::unique_ptr<const TextPattern> make_literal(std::string literal);

// Each character for which the function holds is a match of its own.
std::unique_ptr<const TextPattern> make_character_pattern(bool (*holds)(char32_t));

// A regular expression in Oniguruma's syntax (regex.cpp). Throws Error with Oniguruma's reason when it is not valid.
std::unique_ptr<const TextPattern> make_regex(const std::string& expression);

// The text with each match replaced.
std::string replace(std::string_view text, const std::vector<Match>& matches, std::string_view replacement);

}  // namespace kvroof
