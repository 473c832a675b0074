// The order of versions, however a project counts them: numbers, builds or days.
#pragma once

#include <string_view>

namespace kvroof {

// Whether the version is surely before the other. Both are of one kind, or neither is before the other:
//   numbers  0.8, v1.2.0rc5, 1.3.0    a candidate comes before its release
//   builds   b2822
//   dates    2024, ~2024-05, 2024-05-08    a year or a month is before a day that is after all of its own
// Text that begins with none of them, or with nothing, is before none.
bool earlier_version(std::string_view version, std::string_view other);

// Whether the text begins with such a version.
bool is_version(std::string_view text);

}  // namespace kvroof
