#include "sim/core/version.hpp"

#include <array>
#include <cstdio>
#include <optional>
#include <string>

namespace kvroof {
namespace {

enum class Kind { kNumbers, kBuild, kDate };
using Parts = std::array<unsigned, 4>;
struct Version {
  Kind kind;
  Parts first, last;  // all that the text may mean: a month is any of its days
};

constexpr unsigned kEnd = ~0U;  // after all that are stated
constexpr unsigned kFirstYear = 2000, kLastYear = 2999;

// Reads as much of the text as the format has; sscanf's %u takes signs and blanks, which no version has inside.
std::optional<Version> parsed(std::string_view stated) {
  const std::size_t begin = stated.find_first_not_of("~v ");
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string text(stated.substr(begin));
  Parts v = {0, 0, 0, 0};
  const std::size_t digits = text.find_first_of("0123456789");
  if (digits == 1 && text[0] == 'b' && std::sscanf(text.c_str(), "b%9u", v.data()) == 1) {
    return Version{Kind::kBuild, v, v};
  }
  if (digits != 0) return std::nullopt;
  int end = 0;
  const int dated = std::sscanf(text.c_str(), "%4u%n-%2u%n-%2u%n", v.data(), &end, &v[1], &end, &v[2], &end);
  const auto next = static_cast<std::size_t>(end) < text.size() ? text[static_cast<std::size_t>(end)] : ' ';
  const bool ends = next != '.' && (next < '0' || next > '9');
  if (dated >= 1 && ends && v[0] >= kFirstYear && v[0] <= kLastYear) {
    Version date{Kind::kDate, v, v};
    for (auto part = static_cast<std::size_t>(dated); part < 3; ++part) date.last[part] = kEnd;
    return date;
  }
  v = {0, 0, 0, kEnd};  // a release comes after its candidates
  if (std::sscanf(text.c_str(), "%9u.%9u.%9urc%9u", v.data(), &v[1], &v[2], &v[3]) < 2) return std::nullopt;
  return Version{Kind::kNumbers, v, v};
}

}  // namespace

bool earlier_version(std::string_view version, std::string_view other) {
  const auto mine = parsed(version), theirs = parsed(other);
  return mine && theirs && mine->kind == theirs->kind && mine->last < theirs->first;
}

bool is_version(std::string_view text) { return parsed(text).has_value(); }

}  // namespace kvroof
