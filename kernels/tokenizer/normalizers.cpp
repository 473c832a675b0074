// Normalizers that rewrite the text of a stretch.
#include <utility>

#include "kernels/tokenizer/normal_form.hpp"
#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/pattern.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

// A function of the text alone.
class Rewriter : public Normalizer {
 public:
  using Function = std::string (*)(std::string_view);
  explicit Rewriter(Function rewrite) : rewrite_(rewrite) {}
  void apply(NormalizedText& stretch) const override { stretch.text = rewrite_(stretch.text); }

 private:
  Function rewrite_;
};

std::unique_ptr<const Normalizer> without_settings(const JsonView& spec, Rewriter::Function rewrite) {
  spec.allow_only({"type"});
  return std::make_unique<const Rewriter>(rewrite);
}

template <NormalForm kForm>
std::string normal_form(std::string_view text) {
  return to_normal_form(text, kForm);
}

class StripAccents : public Normalizer {
 public:
  void apply(NormalizedText& stretch) const override {
    std::string out;
    for (std::size_t at = 0; at < stretch.text.size();) {
      const Utf8Sequence c = read_utf8(stretch.text, at);
      if (!is_strippable_mark(c.code_point)) {
        out.append(stretch.text, at, c.length);
      } else if (at == 0) {
        stretch.at_start = false;
      }
      at += c.length;
    }
    stretch.text = std::move(out);
  }
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& stretch) const override {
    if (!stretch.text.empty()) stretch.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(std::unique_ptr<const TextPattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(NormalizedText& stretch) const override {
    std::vector<Match> matches;
    pattern_->find_all(stretch.text, matches);
    if (matches.empty()) return;
    // What replaces several characters stands for the last of them.
    const Match& first = matches.front();
    if (first.begin == 0 && first.end > 0) {
      const bool is_one_character = read_utf8(stretch.text, 0).length == first.end;
      stretch.at_start = stretch.at_start && is_one_character && !content_.empty();
    }
    stretch.text = replace(stretch.text, matches, content_);
  }

 private:
  std::unique_ptr<const TextPattern> pattern_;
  std::string content_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& stretch) const override {
    const std::size_t begin = left_ ? white_space_after(stretch.text, 0) : 0;
    const std::size_t end = right_ ? white_space_before(stretch.text, stretch.text.size(), begin) : stretch.text.size();
    if (begin > 0) stretch.at_start = false;
    stretch.text = stretch.text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

}  // namespace

std::unique_ptr<const Normalizer> make_lowercase(const JsonView& spec) { return without_settings(spec, to_lower_case); }
std::unique_ptr<const Normalizer> make_nfc(const JsonView& spec) {
  return without_settings(spec, normal_form<NormalForm::kNfc>);
}
std::unique_ptr<const Normalizer> make_nfd(const JsonView& spec) {
  return without_settings(spec, normal_form<NormalForm::kNfd>);
}
std::unique_ptr<const Normalizer> make_nfkc(const JsonView& spec) {
  return without_settings(spec, normal_form<NormalForm::kNfkc>);
}
std::unique_ptr<const Normalizer> make_nfkd(const JsonView& spec) {
  return without_settings(spec, normal_form<NormalForm::kNfkd>);
}
std::unique_ptr<const Normalizer> make_strip_accents(const JsonView& spec) {
  spec.allow_only({"type"});
  return std::make_unique<const StripAccents>();
}

std::unique_ptr<const Normalizer> make_prepend(const JsonView& spec) {
  spec.allow_only({"type", "prepend"});
  return std::make_unique<const Prepend>(spec.at("prepend").text());
}

std::unique_ptr<const Normalizer> make_replace_normalizer(const JsonView& spec) {
  spec.allow_only({"type", "pattern", "content"});
  return std::make_unique<const Replace>(make_pattern(spec.at("pattern")), spec.at("content").text());
}

std::unique_ptr<const Normalizer> make_strip_normalizer(const JsonView& spec) {
  spec.allow_only({"type", "strip_left", "strip_right"});
  return std::make_unique<const Strip>(spec.at("strip_left").flag_or(false), spec.at("strip_right").flag_or(false));
}

}  // namespace kvroof
