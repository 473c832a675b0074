// Reading words that people and files write: numbers, letters, parts.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvroof {

// The whole of a text as a number: nothing where it is empty, has blanks or letters, or does not fit. No plus sign; a
// minus and "nan", "inf" where the type has them.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

// Digits with at most one point: no sign, no exponent, no "nan".
std::optional<double> parse_decimal(std::string_view text);

// A whole number, also as one of k (1,024) or m (1,048,576), which may have a point where the whole has none: 4k, 0.5k.
std::optional<std::uint64_t> parse_count(std::string_view text);

// The letters of ASCII in lower case, whatever the locale.
std::string lower_case(std::string_view text);

// Without the white space of ASCII at both ends.
std::string_view trimmed(std::string_view text);

// The parts between separators, at least one; parts may be empty.
std::vector<std::string_view> split(std::string_view text, char separator);

// What a message shows of text that may be hostile: its first 40 bytes.
std::string_view shown(std::string_view text);

// The JSON library takes a zero byte for the end of its input, which would let anything follow it.
inline bool has_zero_byte(std::string_view json) { return json.find('\0') != std::string_view::npos; }

}  // namespace kvroof
