#include "kernels/engine/token_kinds.hpp"

#include <algorithm>
#include <string_view>

#include "kernels/tokenizer/unicode.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

bool is_punctuation_alone(std::string_view text) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Sequence next = read_utf8(text, at);
    const bool punctuation = is_splitting_punctuation(next.code_point);
    if (!punctuation && !is_white_space(next.code_point)) return false;
    any = any || punctuation;
    at += next.length;
  }
  return any;
}

fs::path tokenizer_in(const fs::path& folder) {
  constexpr std::string_view kWhy =
      "and a policy that tells kinds of tokens apart reads them there; expected a folder with tokenizer.json, or "
      "kinds=none, which treats all tokens alike";
  if (folder.empty()) throw usage_error(fmt::format("the trace names no model folder, {}", kWhy));
  const fs::path file = folder / "tokenizer.json";
  std::error_code ignored;
  if (!fs::exists(file, ignored)) {
    throw usage_error(
        fmt::format("{}: the tokenizer of the model that the trace names is not here, {}", file.string(), kWhy));
  }
  return file;
}

}  // namespace

std::vector<TokenKind> token_kinds(const Tokenizer& tokenizer) {
  std::vector<TokenKind> kinds(tokenizer.vocab_size(), TokenKind::kOther);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    const std::string text = tokenizer.decode({&id, 1}, false);
    if (text.empty()) continue;
    if (tokenizer.decode({&id, 1}, true).empty()) {
      kinds[i] = TokenKind::kSpecial;
    } else if (is_punctuation_alone(text)) {
      kinds[i] = TokenKind::kPunctuation;
    }
  }
  return kinds;
}

void append_kinds(std::span<const TokenKind> by_id, std::span<const std::int64_t> ids, std::vector<TokenKind>& kinds) {
  for (const std::int64_t id : ids) {
    const bool known = id >= 0 && static_cast<std::uint64_t>(id) < by_id.size();
    kinds.push_back(known ? by_id[static_cast<std::size_t>(id)] : TokenKind::kOther);
  }
}

void add_token_kinds(Model& model, std::span<const PolicySpec> policies) {
  const auto asks = [](const PolicySpec& spec) { return asks_for(spec, HostNeed::kTokenKinds); };
  const fs::path file = model.path / "tokenizer.json";
  std::error_code ignored;
  if (std::ranges::none_of(policies, asks) || model.path.empty() || !fs::exists(file, ignored)) return;
  model.token_kinds = token_kinds(Tokenizer::load(file));
}

std::function<std::vector<TokenKind>(const TraceSequence&)> token_kinds_of(const TraceReader& trace) {
  return [&trace, by_id = std::vector<TokenKind>()](const TraceSequence& sequence) mutable {
    if (by_id.empty()) by_id = token_kinds(Tokenizer::load(tokenizer_in(trace.manifest().model_path)));
    const std::vector<std::int64_t> ids = trace.token_ids(sequence.id);
    if (ids.size() < sequence.tokens) {
      throw usage_error(fmt::format(
          "{}: the trace has the ids of {} of the {} tokens of sequence {}; a policy that tells kinds of tokens apart "
          "needs all of them, or kinds=none, which treats all tokens alike",
          trace.path().string(), ids.size(), sequence.tokens, sequence.id));
    }
    std::vector<TokenKind> kinds;
    append_kinds(by_id, ids, kinds);
    return kinds;
  };
}

}  // namespace kvroof
