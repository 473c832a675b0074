#include "sim/core/version.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>

namespace kvroof {
namespace {

using u64 = std::uint64_t;
using Parts = std::array<u64, 5>;
struct Version {
  VersionKind kind;
  Parts first, middle;    // of all that the text may mean: a month is any of its days
  std::string_view rest;  // of the text, behind it
};

constexpr u64 kFirstYear = 2000, kLastYear = 2999, kMonths = 12, kDays = 31;
constexpr u64 kMiddleMonth = 7, kMiddleDay = 16;
constexpr u64 kReleased = ~u64{0};  // after all of its candidates

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// A number of at most 18 digits at the beginning of the text, which loses it.
std::optional<u64> take_number(std::string_view& text) {
  constexpr std::size_t kMostDigits = 18;
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  const auto digits = static_cast<std::size_t>(end - text.begin());
  if (digits == 0 || digits > kMostDigits) return std::nullopt;
  u64 value = 0;
  std::from_chars(text.data(), text.data() + digits, value);
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, std::string_view word) {
  const bool begins = text.starts_with(word);
  if (begins) text.remove_prefix(word.size());
  return begins;
}

// 2024, 2024-05, 2024-05-08.
std::optional<Version> date_in(std::string_view text) {
  const auto year = take_number(text);
  if (!year || *year < kFirstYear || *year > kLastYear || text.starts_with('.')) return std::nullopt;
  Version date{VersionKind::kDate, {*year}, {*year, kMiddleMonth, 1}, text};
  constexpr std::array<u64, 2> kMost = {kMonths, kDays};
  for (std::size_t part = 1; part <= kMost.size() && text.size() > 1 && text[0] == '-' && is_digit(text[1]); ++part) {
    text.remove_prefix(1);
    const auto number = take_number(text);
    if (!number || *number == 0 || *number > kMost[part - 1]) return std::nullopt;
    date.first[part] = date.middle[part] = *number;
    if (part == 1) date.middle[2] = kMiddleDay;
  }
  date.rest = text;
  return date;
}

// What comes before a release: 0.8.0.dev3, 1.0a1, 1.0b2, 1.0rc3, 1.0.0-rc.3; in that order.
void take_candidate(std::string_view& text, Parts& parts) {
  struct Stage {
    std::string_view word;
    u64 order;
  };
  constexpr std::array<Stage, 6> kStages = {{{"dev", 0}, {"alpha", 1}, {"a", 1}, {"beta", 2}, {"b", 2}, {"rc", 3}}};
  std::string_view after = text;
  if (after.starts_with('.') || after.starts_with('-')) after.remove_prefix(1);
  for (const Stage& stage : kStages) {
    std::string_view rest = after;
    if (!take(rest, stage.word)) continue;
    take(rest, ".");
    const auto number = take_number(rest);
    if (!number) continue;
    parts[3] = stage.order;
    parts[4] = *number;
    text = rest;
    return;
  }
}

// 0.8, 1.2.0rc5.
std::optional<Version> numbers_in(std::string_view text) {
  Parts parts = {0, 0, 0, kReleased, 0};
  for (std::size_t i = 0; i < 3; ++i) {
    std::string_view rest = text;
    if (i > 0 && !take(rest, ".")) break;
    const auto number = take_number(rest);
    if (!number && i < 2) return std::nullopt;
    if (!number) break;
    if (i == 0 && !rest.starts_with('.')) return std::nullopt;
    parts[i] = *number;
    text = rest;
  }
  take_candidate(text, parts);
  return Version{VersionKind::kNumbers, parts, parts, text};
}

std::optional<Version> parsed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of("~v "), text.size()));
  if (text.starts_with('b')) {
    text.remove_prefix(1);
    const auto build = take_number(text);
    if (!build) return std::nullopt;
    return Version{VersionKind::kBuild, {*build}, {*build}, text};
  }
  if (const auto date = date_in(text)) return date;
  return numbers_in(text);
}

}  // namespace

bool earlier_version(std::string_view version, std::string_view other) {
  const auto mine = parsed(version), theirs = parsed(other);
  return mine && theirs && mine->kind == theirs->kind && mine->middle < theirs->first;
}

std::optional<VersionKind> version_kind(std::string_view text) {
  const auto version = parsed(text);
  return version ? std::optional(version->kind) : std::nullopt;
}

bool is_version(std::string_view text) {
  const auto version = parsed(text);
  if (!version) return false;
  std::string_view rest = version->rest;
  if (version->kind != VersionKind::kNumbers) return rest.empty();
  while (rest.starts_with('.') && rest.size() > 1 && is_digit(rest[1])) {  // 0.1.2.3
    rest.remove_prefix(1);
    take_number(rest);
  }
  if (take(rest, ".post") && !take_number(rest)) return false;
  return rest.empty() || rest.starts_with('+');
}

}  // namespace kvroof
