#include "sim/model/python_json.hpp"

#include <fmt/format.h>

namespace kvroof {

std::string with_words_quoted(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool quoted = false;
  for (std::size_t i = 0; i < text.size();) {
    const auto is_word = [&](std::string_view word) { return text.substr(i).starts_with(word); };
    std::string_view word;
    for (const std::string_view w : {"-Infinity", "Infinity", "NaN"}) {
      if (!quoted && word.empty() && is_word(w)) word = w;
    }
    if (!word.empty()) {
      out += fmt::format("\"{}\"", word);
      i += word.size();
      continue;
    }
    if (quoted && text[i] == '\\' && i + 1 < text.size()) out += text[i++];
    else if (text[i] == '"') quoted = !quoted;
    out += text[i++];
  }
  return out;
}

}  // namespace kvroof
