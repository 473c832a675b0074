// Decoders of sentencepiece-style files, and what joins tokens when a file names no decoder.
#include <tuple>
#include <utility>

#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/pattern.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

// A decoder of one step, made from what the file says.
template <class Step, class... Settings>
class OneStep : public Decoder {
 public:
  explicit OneStep(Settings... settings) : settings_(std::move(settings)...) {}
  TokenSink& start(TokenSink& end, std::vector<std::unique_ptr<TokenSink>>& steps) const override {
    return std::apply(
        [&](const Settings&... s) -> TokenSink& { return *steps.emplace_back(std::make_unique<Step>(end, s...)); },
        settings_);
  }

 private:
  std::tuple<Settings...> settings_;
};

class ReplaceStep : public WholeTokenStep {
 public:
  ReplaceStep(TokenSink& next, const std::shared_ptr<const TextPattern>& pattern, const std::string& content)
      : WholeTokenStep(next), pattern_(pattern.get()), content_(&content) {}

 private:
  void take(std::string_view token) override {
    matches_.clear();
    pattern_->find_all(token, matches_);
    pass(replace(token, matches_, *content_));
  }

  const TextPattern* pattern_;
  const std::string* content_;
  std::vector<Match> matches_;
};

int hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// <0x0A> is a byte; a run of such tokens that is no valid UTF-8 as a whole gives one U+FFFD per token.
class ByteFallbackStep : public WholeTokenStep {
 public:
  using WholeTokenStep::WholeTokenStep;

 private:
  void take(std::string_view token) override {
    if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
      const int high = hexadecimal(token[3]);
      const int low = hexadecimal(token[4]);
      if (high >= 0 && low >= 0) {
        bytes_.push_back(static_cast<char>(16 * high + low));
        return;
      }
    }
    flush();
    pass(token);
  }

  void finish() override { flush(); }

  void flush() {
    if (bytes_.empty()) return;
    if (is_valid_utf8(bytes_)) {
      pass(bytes_);
    } else {
      for (std::size_t i = 0; i < bytes_.size(); ++i) pass("\uFFFD");
    }
    bytes_.clear();
  }

  std::string bytes_;
};

// All tokens become one.
class FuseStep : public DecoderStep {
 public:
  using DecoderStep::DecoderStep;
  void part(std::string_view text) override { next().part(text); }
  void end_token() override {}
  void end_sequence() override {
    next().end_token();
    next().end_sequence();
  }
};

struct StripSettings {
  std::string character;
  std::size_t start, stop;  // how many it takes at most at each end of a token
};

class StripStep : public DecoderStep {
 public:
  StripStep(TokenSink& next, const StripSettings& settings) : DecoderStep(next), settings_(&settings) {
    end_token_here();
  }

  void part(std::string_view text) override {
    const std::string& c = settings_->character;
    while (to_take_ > 0 && text.starts_with(c)) {
      text.remove_prefix(c.size());
      --to_take_;
    }
    if (text.empty()) return;
    to_take_ = 0;
    // The last characters may be those to take: they wait for the end of the token.
    std::string_view kept = text;
    std::size_t trailing = 0;
    while (trailing < settings_->stop && kept.ends_with(c)) {
      kept.remove_suffix(c.size());
      ++trailing;
    }
    if (!kept.empty()) {
      hand_on(held_);
      held_ = 0;
      next().part(kept);
    }
    held_ += trailing;
    if (held_ > settings_->stop) {
      hand_on(held_ - settings_->stop);
      held_ = settings_->stop;
    }
  }

  void end_token() override {
    end_token_here();
    next().end_token();
  }

  void end_sequence() override { next().end_sequence(); }

 private:
  void end_token_here() {
    to_take_ = settings_->start;
    held_ = 0;
  }
  void hand_on(std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) next().part(settings_->character);
  }

  const StripSettings* settings_;
  std::size_t to_take_ = 0;
  std::size_t held_ = 0;  // characters at the end of the token so far that may be taken
};

class SpacedStep : public DecoderStep {
 public:
  using DecoderStep::DecoderStep;
  void part(std::string_view text) override {
    begin();
    next().part(text);
  }
  void end_token() override {
    begin();
    is_open_ = false;
    next().end_token();
  }
  void end_sequence() override {
    is_first_ = true;
    next().end_sequence();
  }

 private:
  void begin() {
    if (!is_open_ && !is_first_) next().part(" ");
    is_open_ = true;
    is_first_ = false;
  }

  bool is_first_ = true;
  bool is_open_ = false;
};

}  // namespace

std::unique_ptr<const Decoder> make_replace_decoder(const JsonView& spec) {
  spec.allow_only({"type", "pattern", "content"});
  return std::make_unique<const OneStep<ReplaceStep, std::shared_ptr<const TextPattern>, std::string>>(
      make_pattern(spec.at("pattern")), spec.at("content").text());
}

std::unique_ptr<const Decoder> make_byte_fallback_decoder(const JsonView& spec) {
  spec.allow_only({"type"});
  return std::make_unique<const OneStep<ByteFallbackStep>>();
}

std::unique_ptr<const Decoder> make_fuse_decoder(const JsonView& spec) {
  spec.allow_only({"type"});
  return std::make_unique<const OneStep<FuseStep>>();
}

std::unique_ptr<const Decoder> make_strip_decoder(const JsonView& spec) {
  spec.allow_only({"type", "content", "start", "stop"});
  StripSettings settings{"", spec.at("start").count_or(0), spec.at("stop").count_or(0)};
  append_utf8(spec.at("content").character(), settings.character);
  return std::make_unique<const OneStep<StripStep, StripSettings>>(std::move(settings));
}

std::unique_ptr<const Decoder> make_spaced_decoder() { return std::make_unique<const OneStep<SpacedStep>>(); }

}  // namespace kvroof
