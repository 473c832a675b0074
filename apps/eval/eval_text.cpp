#include "apps/eval/eval_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "apps/cli/text_input.hpp"

namespace kvroof {

std::string eval_text(const EvalRequest& request) {
  std::string text = text_input("text", request.file.string(), kMostEvalBytes);
  if (text.empty()) throw usage_error(fmt::format("--text {}: the file is empty", request.file.string()));
  return text;
}

TokenIds leading_specials(const Tokenizer& tokenizer) {
  const TokenIds plain = tokenizer.encode("a", false);
  TokenIds ids = tokenizer.encode("a", true);
  const auto text = std::search(ids.begin(), ids.end(), plain.begin(), plain.end());
  ids.erase(text, ids.end());
  return ids;
}

std::string filled(const std::string& pattern, const std::function<std::string(const std::string& key)>& text_of) {
  const auto in_keys = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  std::string text;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t end = pattern[at] == '{' ? pattern.find('}', at) : std::string::npos;
    const std::string key = end == std::string::npos ? "" : pattern.substr(at + 1, end - at - 1);
    if (key.empty() || !std::ranges::all_of(key, in_keys)) {
      text += pattern[at++];
    } else {
      text += text_of(key);
      at = end + 1;
    }
  }
  return text;
}

}  // namespace kvroof
