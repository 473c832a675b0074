// Hand-written scanners for the regular expressions by which published tokenizers cut text into pieces.
#pragma once

#include <cstddef>
#include <string_view>

#include "kernels/tokenizer/pattern.hpp"

namespace kvroof {

// Finds the first match of one expression that begins at or after text[at]; its begin is text.size() when there is
// none. The text is valid UTF-8, at < text.size() lies at the start of a character.
using Scanner = Match (*)(std::string_view text, std::size_t at);

// The scanner for exactly this expression, null when none is written: a new one is one function and one table line.
[[nodiscard]] Scanner scanner_of(std::string_view expression);

// The expression of GPT-2, which ByteLevel has built in.
[[nodiscard]] std::string_view gpt2_expression();

}  // namespace kvroof
