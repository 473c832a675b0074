// JSON as Python writes it.
#pragma once

#include <string>
#include <string_view>

namespace kvroof {

// Python writes what is no finite number (Infinity, NaN) without quotes, and JSON has no word for it (Nemotron-H's
// time_step_limit). Quoted it is a text, which is refused where a number is read.
std::string with_words_quoted(std::string_view text);

}  // namespace kvroof
