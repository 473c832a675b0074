// The parts of a tokenizer and the functions that make them; internal to the tokenizer.
//
// A new kind of part is one file with a make function and one line in a table of parts.cpp. A make function
// reads its JSON object strictly: it throws Error (unsupported or damaged, see JsonView) for anything it does not know.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/tokenizer/json_view.hpp"

namespace kvroof {

// A stretch of text between added tokens, cut into pieces: piece i is text[ends[i - 1], ends[i]), none of them empty.
// The text is valid UTF-8 and pieces end between characters.
struct Pieces {
  std::string text;
  std::vector<std::size_t> ends;
  bool at_text_start;  // whether the first piece begins the whole text, with no added token before it
};

// The text of a stretch on its way through the normalizers: valid UTF-8.
struct NormalizedText {
  std::string text;
  bool at_start = true;  // whether it still begins with what the stretch began with
};

// Changes the text of a stretch before it is cut.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& stretch) const = 0;
};

// Cuts the pieces of a stretch further, or rewrites their text.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using TokenIds = std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>>;

// One run of encoding: holds what the model remembers between the pieces of a text.
class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;
  // Appends the ids of one piece. Throws Error when the piece needs an unknown token that the file lacks.
  virtual void encode(std::string_view piece, std::vector<std::int64_t>& ids) = 0;
};

// Gives the ids of pieces. The encoder must not outlive the model.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  [[nodiscard]] virtual const TokenIds& vocabulary() const = 0;
  // For a text of about `bytes`.
  [[nodiscard]] virtual std::unique_ptr<PieceEncoder> start(std::size_t bytes) const = 0;
};

// The tokens of model and added tokens by id.
using TokensById = std::unordered_map<std::uint32_t, std::string_view>;

// Adds special tokens around the ids of one text.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual void apply(std::vector<std::int64_t>& ids) const = 0;
};

// Takes a sequence of tokens, each in one part or more. All text is valid UTF-8; a part never cuts a character.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void part(std::string_view text) = 0;  // of the token that is open; opens one when none is
  virtual void end_token() = 0;                  // every token ends, an empty one without any part
  virtual void end_sequence() = 0;               // afterwards as new
};

// One step of decoding: rewrites the tokens of a sequence and hands on what later ones cannot change.
class DecoderStep : public TokenSink {
 public:
  explicit DecoderStep(TokenSink& next) : next_(&next) {}

 protected:
  [[nodiscard]] TokenSink& next() const { return *next_; }
  void pass(std::string_view token) const {
    next_->part(token);
    next_->end_token();
  }

 private:
  TokenSink* next_;
};

// A step that looks at whole tokens.
class WholeTokenStep : public DecoderStep {
 public:
  using DecoderStep::DecoderStep;
  void part(std::string_view text) final { token_ += text; }
  void end_token() final {
    take(token_);
    token_.clear();
  }
  void end_sequence() final {
    finish();
    next().end_sequence();
  }

 protected:
  virtual void take(std::string_view token) = 0;
  virtual void finish() {}  // of the sequence; afterwards as new

 private:
  std::string token_;
};

// The steps of a decoder, in order.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Appends the steps, last first, so that each knows the next; returns the first. `steps` owns them, `end` takes the
  // decoded text. The steps must not outlive the decoder.
  virtual TokenSink& start(TokenSink& end, std::vector<std::unique_ptr<TokenSink>>& steps) const = 0;
};

// Select a part by its "type"; null where the file says null (without a decoder, tokens are joined by spaces).
std::unique_ptr<const Normalizer> make_normalizer(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const JsonView& spec);
std::unique_ptr<const TokenModel> make_token_model(const JsonView& spec);
std::unique_ptr<const PostProcessor> make_post_processor(const JsonView& spec, const TokensById& tokens);
std::unique_ptr<const Decoder> make_decoder(const JsonView& spec);

// normalizers.cpp
std::unique_ptr<const Normalizer> make_lowercase(const JsonView& spec);
std::unique_ptr<const Normalizer> make_nfc(const JsonView& spec);
std::unique_ptr<const Normalizer> make_nfd(const JsonView& spec);
std::unique_ptr<const Normalizer> make_nfkc(const JsonView& spec);
std::unique_ptr<const Normalizer> make_nfkd(const JsonView& spec);
std::unique_ptr<const Normalizer> make_prepend(const JsonView& spec);
std::unique_ptr<const Normalizer> make_replace_normalizer(const JsonView& spec);
std::unique_ptr<const Normalizer> make_strip_normalizer(const JsonView& spec);
std::unique_ptr<const Normalizer> make_strip_accents(const JsonView& spec);

// split.cpp: cutting at what a pattern finds.
std::unique_ptr<const PreTokenizer> make_bert_pre_tokenizer(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_character_split(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_digits(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_fixed_length(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_punctuation(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_split(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_whitespace(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_whitespace_split(const JsonView& spec);

// metaspace.cpp: spaces as a printable character (sentencepiece).
std::unique_ptr<const PreTokenizer> make_metaspace_pre_tokenizer(const JsonView& spec);
std::unique_ptr<const Decoder> make_metaspace_decoder(const JsonView& spec);

// byte_level.cpp: bytes as printable stand-in characters (GPT-2).
std::unique_ptr<const Normalizer> make_byte_level_normalizer(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_byte_level_pre_tokenizer(const JsonView& spec);
std::unique_ptr<const PostProcessor> make_byte_level_post_processor(const JsonView& spec, const TokensById& tokens);
std::unique_ptr<const Decoder> make_byte_level_decoder(const JsonView& spec);

// bpe_model.cpp: byte-pair encoding with ranked merges. unigram.cpp: the likeliest pieces.
std::unique_ptr<const TokenModel> make_bpe_model(const JsonView& spec);
std::unique_ptr<const TokenModel> make_unigram_model(const JsonView& spec);

// template.cpp: special tokens before and after a text.
std::unique_ptr<const PostProcessor> make_template_post_processor(const JsonView& spec, const TokensById& tokens);
std::unique_ptr<const PostProcessor> make_bert_post_processor(const JsonView& spec, const TokensById& tokens);
std::unique_ptr<const PostProcessor> make_roberta_post_processor(const JsonView& spec, const TokensById& tokens);

// decoders.cpp
std::unique_ptr<const Decoder> make_byte_fallback_decoder(const JsonView& spec);
std::unique_ptr<const Decoder> make_fuse_decoder(const JsonView& spec);
std::unique_ptr<const Decoder> make_replace_decoder(const JsonView& spec);
std::unique_ptr<const Decoder> make_spaced_decoder();  // tokens with a space between them: files without a decoder
std::unique_ptr<const Decoder> make_strip_decoder(const JsonView& spec);

}  // namespace kvroof
