// Metaspace: each space becomes a printable character, usually ▁ (U+2581), as in sentencepiece.
#include <utility>

#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

// Which pieces get a replacement character put before them, unless they begin with one.
enum class MarkPlace : std::uint8_t { kNever, kFirst, kAlways };

struct Settings {
  std::string replacement;
  MarkPlace prepend;
  bool split;
};

MarkPlace prepend_of(const JsonView& spec) {
  const JsonView scheme = spec.at("prepend_scheme");
  const std::string name = scheme.text_or("always");
  const bool wants_none = !spec.at("add_prefix_space").flag_or(true);  // the older name of the setting
  if (wants_none && scheme.is_text() && name != "never") {
    throw scheme.damaged(fmt::format("{} contradicts add_prefix_space, which is false", in_quotes(name)));
  }
  if (wants_none || name == "never") return MarkPlace::kNever;
  if (name == "first") return MarkPlace::kFirst;
  if (name == "always") return MarkPlace::kAlways;
  throw scheme.unsupported(fmt::format("{} is not supported; never, first and always are", in_quotes(name)));
}

Settings settings_of(const JsonView& spec) {
  spec.allow_only({"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
  Settings settings{"", prepend_of(spec), spec.at("split").flag_or(true)};
  append_utf8(spec.at("replacement").character(), settings.replacement);
  return settings;
}

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(Settings settings) : settings_(std::move(settings)) {}

  void apply(Pieces& pieces) const override {
    Pieces result{{}, {}, pieces.at_text_start};
    result.text.reserve(pieces.text.size() * 3 / 2 + settings_.replacement.size());
    std::size_t begin = 0;
    for (const std::size_t end : pieces.ends) {
      const std::string_view piece = std::string_view(pieces.text).substr(begin, end - begin);
      const bool wanted = settings_.prepend == MarkPlace::kAlways ||
                          (settings_.prepend == MarkPlace::kFirst && begin == 0 && pieces.at_text_start);
      rewrite(piece, wanted, result);
      begin = end;
    }
    pieces = std::move(result);
  }

 private:
  void rewrite(std::string_view piece, bool prepend, Pieces& result) const {
    const std::string& mark = settings_.replacement;
    const std::size_t start = result.text.size();
    if (prepend && !piece.starts_with(' ') && !piece.starts_with(mark)) result.text += mark;
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t space = std::min(piece.find(' ', at), piece.size());
      result.text += piece.substr(at, space - at);
      if (space < piece.size()) result.text += mark;
      at = space + 1;
    }
    // A cut before each mark but the one that the piece begins with.
    for (std::size_t at = start + 1; settings_.split;) {
      at = result.text.find(mark, at);
      if (at == std::string::npos) break;
      result.ends.push_back(at);
      at += mark.size();
    }
    result.ends.push_back(result.text.size());
  }

  Settings settings_;
};

// Marks become spaces; with a scheme that puts one before the text, those of the first token are left out.
class MetaspaceStep : public WholeTokenStep {
 public:
  MetaspaceStep(TokenSink& next, const Settings& settings) : WholeTokenStep(next), settings_(&settings) {}

 private:
  void take(std::string_view token) override {
    const std::string& mark = settings_->replacement;
    const std::string_view space = is_first_ && settings_->prepend != MarkPlace::kNever ? "" : " ";
    std::string text;
    for (std::size_t at = 0; at < token.size();) {
      const std::size_t found = std::min(token.find(mark, at), token.size());
      text += token.substr(at, found - at);
      if (found < token.size()) text += space;
      at = found + mark.size();
    }
    is_first_ = false;
    pass(text);
  }
  void finish() override { is_first_ = true; }

  const Settings* settings_;
  bool is_first_ = true;
};

class MetaspaceDecoder : public Decoder {
 public:
  explicit MetaspaceDecoder(Settings settings) : settings_(std::move(settings)) {}
  TokenSink& start(TokenSink& end, std::vector<std::unique_ptr<TokenSink>>& steps) const override {
    return *steps.emplace_back(std::make_unique<MetaspaceStep>(end, settings_));
  }

 private:
  Settings settings_;
};

}  // namespace

std::unique_ptr<const PreTokenizer> make_metaspace_pre_tokenizer(const JsonView& spec) {
  return std::make_unique<const MetaspacePreTokenizer>(settings_of(spec));
}

std::unique_ptr<const Decoder> make_metaspace_decoder(const JsonView& spec) {
  return std::make_unique<const MetaspaceDecoder>(settings_of(spec));
}

}  // namespace kvroof
