// The text of `kvroof eval --text`, and what its tasks put before tokens of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/eval/eval_request.hpp"
#include "kernels/tokenizer/tokenizer.hpp"

namespace kvroof {

// Of a file that is read whole.
inline constexpr std::uint64_t kMostEvalBytes = std::uint64_t{1} << 30;

using TokenIds = std::vector<std::int64_t>;

// The file of --text. Throws Error (usage) when it cannot be read, is no text or is empty.
std::string eval_text(const EvalRequest& request);

// The special tokens that the tokenizer puts before a text; what it puts behind one would end the text and is left out.
TokenIds leading_specials(const Tokenizer& tokenizer);

// A template with the text of each {key} in its place; other braces stay as they are, and so do those of the texts.
std::string filled(const std::string& pattern, const std::function<std::string(const std::string& key)>& text_of);

}  // namespace kvroof
