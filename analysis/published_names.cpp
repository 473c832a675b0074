#include "analysis/published_names.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

namespace kvroof {
namespace {

constexpr std::uint32_t kShortPrompt = 32;

}  // namespace

std::string one_board(const std::string& name) {
  const std::size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos) return name;
  const std::size_t times = name.find_first_not_of(' ', digits);
  const bool many = times != std::string::npos && (name[times] == 'x' || name[times] == 'X');
  return many ? name.substr(std::min(name.find_first_not_of(' ', times + 1), name.size())) : name;
}

std::optional<std::uint32_t> published_count(std::string_view text) {
  constexpr std::uint64_t kMostCount = std::numeric_limits<std::uint32_t>::max();
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto at = std::find_if(text.begin(), text.end(), digit);
  if (at == text.end()) return text.starts_with("short") ? std::optional(kShortPrompt) : std::nullopt;
  const char* const stop = text.data() + text.size();
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(&*at, stop, value);
  if (error != std::errc()) return std::nullopt;
  // 1,024: groups of three digits.
  const auto group_follows = [&] {
    if (stop - end < 4 || *end != ',' || !std::all_of(end + 1, end + 4, digit)) return false;
    return stop - end == 4 || !digit(end[4]);
  };
  while (value <= kMostCount && group_follows()) {
    for (int i = 1; i < 4; ++i) value = 10 * value + static_cast<std::uint64_t>(end[i] - '0');
    end += 4;
  }
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const bool thousands = end != stop && (*end == 'k' || *end == 'K') && (end + 1 == stop || !letter(end[1]));
  if (value > kMostCount) return std::nullopt;
  if (thousands) value *= 1024;
  return value <= kMostCount ? std::optional(static_cast<std::uint32_t>(value)) : std::nullopt;
}

}  // namespace kvroof
