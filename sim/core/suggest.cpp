#include "sim/core/suggest.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

namespace kvroof {
namespace {

// Letters left out, added, changed, or exchanged with the next one, each one step (Damerau 1964), in either case.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [&](std::size_t i, std::size_t j) {
    return std::tolower(static_cast<unsigned char>(a[i])) == std::tolower(static_cast<unsigned char>(b[j]));
  };
  std::vector<std::size_t> before, last, row(b.size() + 1);  // of two letters less of a, of one less, of so many
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (same(i - 1, j - 1) ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, changed});
      const bool exchanged = i > 1 && j > 1 && same(i - 1, j - 2) && same(i - 2, j - 1);
      if (exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view typed, std::span<const std::string> known) {
  // A hostile name of a megabyte must not cost a quadratic comparison.
  if (typed.empty() || typed.size() > 64) return {};
  std::vector<std::string> best;
  // What begins one name alone means that one, however much of it is missing.
  constexpr std::size_t kFewest = 3;
  const auto begins = [&](const std::string& name) { return typed.size() >= kFewest && name.starts_with(typed); };
  if (std::ranges::count_if(known, begins) == 1) return {*std::ranges::find_if(known, begins)};
  std::size_t best_distance = std::max<std::size_t>(1, typed.size() / 3);
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(typed, name);
    if (distance > best_distance) continue;
    if (distance < best_distance) best.clear();
    best.push_back(name);
    best_distance = distance;
  }
  if (best.empty() && typed.size() >= kFewest) {
    std::ranges::copy_if(known, std::back_inserter(best),
                         [&](const std::string& name) { return begins(name) || typed.starts_with(name); });
  }
  constexpr std::size_t kMost = 3;
  best.resize(std::min(best.size(), kMost));
  return best;
}

std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> known) {
  const std::vector<std::string> nearest = nearest_names(typed, known);
  if (nearest.empty()) return std::nullopt;
  return nearest.front();
}

std::optional<std::string> same_name(std::string_view typed, std::span<const std::string> known) {
  for (const std::string& name : known) {
    if (name.size() == typed.size() && edit_distance(typed, name) == 0) return name;
  }
  return std::nullopt;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> known) {
  const auto name = nearest_name(typed, known);
  return name ? "; did you mean " + *name + "?" : std::string();
}

std::string did_you_mean_any(std::string_view typed, std::span<const std::string> known) {
  std::vector<std::string> names = nearest_names(typed, known);
  if (names.empty()) return {};
  const std::string last = names.back();
  names.pop_back();
  return "; did you mean " + join(names) + (names.empty() ? "" : " or ") + last + "?";
}

std::string join(std::span<const std::string> names, std::string_view separator) {
  std::string all;
  for (const std::string& name : names) {
    if (!all.empty()) all += separator;
    all += name;
  }
  return all;
}

void add_new(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

}  // namespace kvroof
