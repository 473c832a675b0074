#include "kernels/tokenizer/pattern.hpp"

#include "kernels/tokenizer/scanners.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

class Literal : public TextPattern {
 public:
  explicit Literal(std::string literal) : literal_(std::move(literal)) {}
  void find_all(std::string_view text, std::vector<Match>& matches) const override {
    for (std::size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, at)) {
      matches.push_back({at, at + literal_.size()});
      at += literal_.size();
    }
  }

 private:
  std::string literal_;  // not empty
};

class Scanned : public TextPattern {
 public:
  explicit Scanned(Scanner scanner) : scanner_(scanner) {}
  void find_all(std::string_view text, std::vector<Match>& matches) const override {
    for (std::size_t at = 0; at < text.size();) {
      const Match match = scanner_(text, at);
      if (match.begin == text.size()) return;
      matches.push_back(match);
      at = match.end;
    }
  }

 private:
  Scanner scanner_;
};

class CharacterPattern : public TextPattern {
 public:
  explicit CharacterPattern(bool (*holds)(char32_t)) : holds_(holds) {}
  void find_all(std::string_view text, std::vector<Match>& matches) const override {
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Sequence c = read_utf8(text, at);
      if (holds_(c.code_point)) matches.push_back({at, at + c.length});
      at += c.length;
    }
  }

 private:
  bool (*holds_)(char32_t);
};

}  // namespace

std::unique_ptr<const TextPattern> make_character_pattern(bool (*holds)(char32_t)) {
  return std::make_unique<const CharacterPattern>(holds);
}

std::unique_ptr<const TextPattern> make_literal(std::string literal) {
  return std::make_unique<const Literal>(std::move(literal));
}

std::unique_ptr<const TextPattern> make_pattern(const JsonView& spec) {
  spec.allow_only({"String", "Regex"});
  if (spec.has("String") == spec.has("Regex")) throw spec.damaged("expected either String or Regex");
  if (spec.has("String") && !spec.at("String").text().empty()) {
    return make_literal(spec.at("String").text());
  }
  // The empty literal matches between all characters, as the empty expression does.
  const JsonView expression = spec.at(spec.has("String") ? "String" : "Regex");
  if (const Scanner scanner = scanner_of(expression.text())) return std::make_unique<const Scanned>(scanner);
  try {
    return make_regex(expression.text());
  } catch (const Error& e) {
    throw expression.damaged(e.what());
  }
}

std::string replace(std::string_view text, const std::vector<Match>& matches, std::string_view replacement) {
  std::string out;
  out.reserve(text.size() + matches.size() * replacement.size());
  std::size_t done = 0;
  for (const Match& match : matches) {
    out += text.substr(done, match.begin - done);
    out += replacement;
    done = match.end;
  }
  return out.append(text.substr(done));
}

}  // namespace kvroof
