// The order of versions, however a project counts them: numbers, builds or days.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvroof {

//   numbers  0.8, v0.6.3.post1, 1.2.0rc5, 0.9.0.dev3    0.8 is 0.8.0; a candidate comes before its release
//   builds   b2822
//   dates    2024, ~2024-05, 2024-05-08                 a year or a month is its middle
enum class VersionKind : std::uint8_t { kNumbers, kBuild, kDate };

// What a message shows of them.
inline constexpr std::string_view kVersionExamples = "0.8.1, b2822 or 2024-05-08";

// Whether the version that the text begins with is before the one that the other begins with: its middle before the
// other's first day, so that a year is before a day of its second half. Versions of two kinds are never before one
// another, nor is text that begins with none.
bool earlier_version(std::string_view version, std::string_view other);

// How the version that the text begins with is counted; nothing where it begins with none.
std::optional<VersionKind> version_kind(std::string_view text);

// Whether the text is such a version and nothing else but what projects add to numbers: .post1, +cu121, a fourth one.
bool is_version(std::string_view text);

}  // namespace kvroof
