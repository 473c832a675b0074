// The parts of a tokenizer and the functions that make them; internal to the tokenizer.
//
// A new kind of part is one file with a make function and one line in a table of parts.cpp. A make function
// reads its JSON object strictly: it throws Error (unsupported or damaged, see JsonView) for anything it does not know.
#pragma once

#include <cstdint>
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
};

// Changes the text of a stretch before it is cut. Input and output are valid UTF-8.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  [[nodiscard]] virtual std::string normalize(std::string_view text) const = 0;
};

// Cuts the pieces of a stretch further, or rewrites their text.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

using TokenIds = std::unordered_map<std::string, std::uint32_t>;

// One run of encoding: holds what the model remembers between the pieces of a text.
class PieceEncoder {
 public:
  virtual ~PieceEncoder() = default;
  // Appends the ids of one piece.
  virtual void encode(std::string_view piece, std::vector<std::int64_t>& ids) = 0;
};

// Gives the ids of pieces. The encoder must not outlive the model.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  [[nodiscard]] virtual const TokenIds& vocabulary() const = 0;
  [[nodiscard]] virtual std::unique_ptr<PieceEncoder> start() const = 0;
};

// The tokens of model and added tokens by id.
using TokensById = std::unordered_map<std::uint32_t, std::string_view>;

// Adds special tokens around the ids of one text.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual void apply(std::vector<std::int64_t>& ids) const = 0;
};

// One run of decoding. Appends to `out` only text that later tokens cannot change; all of it is valid UTF-8.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void push(std::string_view token, std::string& out) = 0;
  virtual void finish(std::string& out) = 0;  // afterwards as new
};

class Decoder {
 public:
  virtual ~Decoder() = default;
  [[nodiscard]] virtual std::unique_ptr<TokenDecoder> start() const = 0;
};

// Select a part by its "type"; null where the file says null (the decoder may not be null).
std::unique_ptr<const Normalizer> make_normalizer(const JsonView& spec);
std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const JsonView& spec);
std::unique_ptr<const TokenModel> make_token_model(const JsonView& spec);
std::unique_ptr<const PostProcessor> make_post_processor(const JsonView& spec, const TokensById& tokens);
std::unique_ptr<const Decoder> make_decoder(const JsonView& spec);

// byte_level.cpp: bytes as printable stand-in characters (GPT-2).
std::unique_ptr<const PreTokenizer> make_byte_level_pre_tokenizer(const JsonView& spec);
std::unique_ptr<const PostProcessor> make_byte_level_post_processor(const JsonView& spec, const TokensById& tokens);
std::unique_ptr<const Decoder> make_byte_level_decoder(const JsonView& spec);

// bpe.cpp: byte-pair encoding with ranked merges.
std::unique_ptr<const TokenModel> make_bpe_model(const JsonView& spec);

// template.cpp: special tokens before and after a text.
std::unique_ptr<const PostProcessor> make_template_post_processor(const JsonView& spec, const TokensById& tokens);
std::unique_ptr<const PostProcessor> make_roberta_post_processor(const JsonView& spec, const TokensById& tokens);

}  // namespace kvroof
