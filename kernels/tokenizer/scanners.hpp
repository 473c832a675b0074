// Hand-written scanners for the regular expressions by which tokenizers cut text into pieces.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvroof {

// Where the piece that begins at text[at] ends under the pattern of GPT-2,
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// with Unicode classes. The pattern matches at every position, so its pieces leave no gaps.
// The text is valid UTF-8, at < text.size() lies at the start of a character.
[[nodiscard]] std::size_t gpt2_piece_end(std::string_view text, std::size_t at);

}  // namespace kvroof
