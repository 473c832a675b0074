// "Did you mean": the nearest of the known names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvroof {

// The known name with the smallest edit distance, if it is near enough to be a typo (a third of the length, at least 1;
// or one is a prefix of the other); the only name that begins with it comes before all.
std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> known);

// All known names that are as near as that one, at most three: a word that begins many names means none of them alone.
std::vector<std::string> nearest_names(std::string_view typed, std::span<const std::string> known);

// "; did you mean X?" or nothing.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);
// "; did you mean X, Y or Z?" of the nearest names, or nothing.
std::string did_you_mean_any(std::string_view typed, std::span<const std::string> known);

// The known name that differs from this one in the case of letters alone, if there is one.
std::optional<std::string> same_name(std::string_view typed, std::span<const std::string> known);

// "a, b, c": for messages that list what is known.
std::string join(std::span<const std::string> names, std::string_view separator = ", ");
// Appends a name that is not among them yet.
void add_new(std::vector<std::string>& names, const std::string& name);

}  // namespace kvroof
