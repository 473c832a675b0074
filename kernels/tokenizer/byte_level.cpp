#include <array>
#include <utility>

#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/scanners.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

constexpr char32_t kStandIns = 0x100;  // the bytes that are no printable Latin-1 characters stand at U+0100 …

constexpr bool stands_for_itself(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

// GPT-2's stand-in characters: printable Latin-1 bytes are themselves, the others U+0100, U+0101, … in order.
struct StandIns {
  std::array<std::string, 256> of_byte;
  std::array<std::int16_t, 0x180> to_byte{};  // −1: no stand-in

  StandIns() {
    to_byte.fill(-1);
    char32_t next = kStandIns;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const char32_t c = stands_for_itself(byte) ? byte : next++;
      append_utf8(c, of_byte[byte]);
      to_byte[c] = static_cast<std::int16_t>(byte);
    }
  }
};

const StandIns& stand_ins() {
  static const StandIns table;
  return table;
}

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(const JsonView& spec)
      : add_prefix_space_(spec.at("add_prefix_space").flag_or(true)), use_regex_(spec.at("use_regex").flag_or(true)) {}

  void apply(Pieces& pieces) const override {
    Pieces result;
    result.text.reserve(pieces.text.size() + pieces.text.size() / 4);
    std::size_t begin = 0;
    for (const std::size_t end : pieces.ends) {
      const std::string_view piece = std::string_view(pieces.text).substr(begin, end - begin);
      if (add_prefix_space_ && !piece.starts_with(' ')) {
        cut(" " + std::string(piece), result);
      } else {
        cut(piece, result);
      }
      begin = end;
    }
    pieces = std::move(result);
  }

 private:
  void cut(std::string_view piece, Pieces& result) const {
    const StandIns& table = stand_ins();
    std::size_t at = 0;
    while (at < piece.size()) {
      const std::size_t end = use_regex_ ? gpt2_piece_end(piece, at) : piece.size();
      for (; at < end; ++at) result.text += table.of_byte[static_cast<std::uint8_t>(piece[at])];
      result.ends.push_back(result.text.size());
    }
  }

  bool add_prefix_space_;
  bool use_regex_;
};

// As a post-processor ByteLevel only trims offsets, which nobody asks for here.
class ByteLevelPostProcessor : public PostProcessor {
 public:
  void apply(std::vector<std::int64_t>&) const override {}
};

// Bytes of tokens are joined over token borders before they are read as UTF-8.
class ByteLevelTokenDecoder : public TokenDecoder {
 public:
  void push(std::string_view token, std::string& out) override {
    append_bytes(token);
    pending_.erase(0, append_valid_utf8(pending_, false, out));
  }
  void finish(std::string& out) override {
    append_valid_utf8(pending_, true, out);
    pending_.clear();
  }

 private:
  // A token with any character that is no stand-in (an added token, mostly) is text as it stands.
  void append_bytes(std::string_view token) {
    const std::size_t before = pending_.size();
    for (std::size_t at = 0; at < token.size();) {
      const Utf8Sequence s = read_utf8(token, at);
      const auto& to_byte = stand_ins().to_byte;
      if (s.code_point >= to_byte.size() || to_byte[s.code_point] < 0) {
        pending_.resize(before);
        pending_ += token;
        return;
      }
      pending_.push_back(static_cast<char>(to_byte[s.code_point]));
      at += s.length;
    }
  }

  std::string pending_;
};

class ByteLevelDecoder : public Decoder {
 public:
  [[nodiscard]] std::unique_ptr<TokenDecoder> start() const override {
    return std::make_unique<ByteLevelTokenDecoder>();
  }
};

// All three kinds carry the same settings; those that a kind has no use for are checked all the same.
void check_settings(const JsonView& spec) {
  spec.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) (void)spec.at(key).flag_or(true);
}

}  // namespace

std::unique_ptr<const PreTokenizer> make_byte_level_pre_tokenizer(const JsonView& spec) {
  check_settings(spec);
  return std::make_unique<const ByteLevelPreTokenizer>(spec);
}

std::unique_ptr<const PostProcessor> make_byte_level_post_processor(const JsonView& spec, const TokensById&) {
  check_settings(spec);
  return std::make_unique<const ByteLevelPostProcessor>();
}

std::unique_ptr<const Decoder> make_byte_level_decoder(const JsonView& spec) {
  check_settings(spec);
  return std::make_unique<const ByteLevelDecoder>();
}

}  // namespace kvroof
