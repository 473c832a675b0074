#include "apps/eval_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "traces/file_io.hpp"

namespace kvroof {

std::string eval_text(const EvalRequest& request) {
  std::string text =
      read_text_file(request.file, kMostEvalBytes).or_throw("--text " + request.file.string(), ExitCode::kUsage);
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

}  // namespace kvroof
