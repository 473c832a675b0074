#include "sim/core/text.hpp"

#include <algorithm>
#include <cmath>

namespace kvroof {

std::optional<double> parse_decimal(std::string_view text) {
  if (text.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  return parse_number<double>(text);
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  const std::string unit = lower_case(text.substr(text.size() - (text.empty() ? 0 : 1)));
  const double times = unit == "k" ? 1024 : unit == "m" ? 1024 * 1024 : 1;
  if (times == 1) return parse_number<std::uint64_t>(text);
  const auto number = parse_decimal(text.substr(0, text.size() - 1));
  constexpr double kMostExact = 1ULL << 53;
  if (!number || *number * times > kMostExact || *number * times != std::floor(*number * times)) return std::nullopt;
  return static_cast<std::uint64_t>(*number * times);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kWhite = " \t\n\v\f\r";
  const std::size_t first = std::min(text.find_first_not_of(kWhite), text.size());
  return text.substr(first, text.find_last_not_of(kWhite) + 1 - first);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view shown(std::string_view text) {
  constexpr std::size_t kShown = 40;
  return text.substr(0, kShown);
}

}  // namespace kvroof
