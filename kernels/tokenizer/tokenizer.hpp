// Text to token ids and back, as a Hugging Face tokenizer.json says.
//
// The pipeline is the file's own: added tokens, normalizer, pre-tokenizer, model, post-processor, decoder. Each part is
// selected by its "type" from a table (parts.cpp); a part or setting that is not known is refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/error.hpp"

namespace kvroof {

// Immutable after loading; all functions may be called from several threads at once.
class Tokenizer {
 public:
  // Reads the text of a tokenizer.json; the error is one sentence.
  static Result<Tokenizer> from_json(std::string_view text);

  // Reads a file. Throws Error: usage when a part of it is not supported, failure when it is missing or damaged.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  // The ids of a text; with add_special also what the post-processor adds (begin of text, …). Invalid UTF-8 is no
  // error: each maximal invalid sequence is read as U+FFFD. A character that the vocabulary cannot express gives the
  // file's unknown token, or nothing where the file names none, as in the reference library. Throws Error when a
  // regular expression of the file takes unreasonably long on the text, or the unknown token does not exist.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text, bool add_special) const;

  // The text of ids, always valid UTF-8. With skip_special, special tokens give no text; ids without a token never do.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids, bool skip_special) const;

  // Largest id + 1, added tokens included.
  [[nodiscard]] std::uint32_t vocab_size() const;

  // The id of a token as it is written in tokenizer.json, and the reverse.
  [[nodiscard]] std::optional<std::int64_t> id_of(std::string_view token) const;
  [[nodiscard]] std::optional<std::string_view> token_of(std::int64_t id) const;

 private:
  friend class StreamingDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

// Decodes ids one at a time. What push() returns is valid UTF-8 and never changes later: bytes of an unfinished
// character wait for the next id. All returned texts together equal Tokenizer::decode of all ids.
class StreamingDecoder {
 public:
  // The tokenizer must outlive the decoder.
  StreamingDecoder(const Tokenizer& tokenizer, bool skip_special);
  StreamingDecoder(StreamingDecoder&&) noexcept;
  StreamingDecoder& operator=(StreamingDecoder&&) noexcept;
  ~StreamingDecoder();

  // The text that this id settles; often empty in the middle of a character.
  [[nodiscard]] std::string push(std::int64_t id);

  // The rest: U+FFFD for an unfinished character. Afterwards the decoder may be used for another sequence.
  [[nodiscard]] std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvroof
