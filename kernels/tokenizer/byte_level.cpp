#include <algorithm>
#include <array>
#include <utility>
#include <vector>

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
  struct Character {
    std::array<char, 2> utf8{};
    std::uint8_t length = 0;
  };
  std::array<Character, 256> of_byte;
  std::array<std::int16_t, 0x180> to_byte{};  // −1: no stand-in

  StandIns() {
    to_byte.fill(-1);
    char32_t next = kStandIns;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const char32_t c = stands_for_itself(byte) ? byte : next++;
      std::string utf8;
      append_utf8(c, utf8);
      std::copy(utf8.begin(), utf8.end(), of_byte[byte].utf8.begin());
      of_byte[byte].length = static_cast<std::uint8_t>(utf8.size());
      to_byte[c] = static_cast<std::int16_t>(byte);
    }
  }
};

const StandIns& stand_ins() {
  static const StandIns table;
  return table;
}

void append_stand_ins(std::string_view bytes, std::string& out) {
  const StandIns& table = stand_ins();
  std::size_t end = out.size();
  out.resize(end + 2 * bytes.size());
  for (const char byte : bytes) {
    const StandIns::Character& c = table.of_byte[static_cast<std::uint8_t>(byte)];
    out[end] = c.utf8[0];
    out[end + 1] = c.utf8[1];
    end += c.length;
  }
  out.resize(end);
}

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& stretch) const override {
    std::string out;
    append_stand_ins(stretch.text, out);
    stretch.text = std::move(out);
  }
};

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(const JsonView& spec)
      : add_prefix_space_(spec.at("add_prefix_space").flag_or(true)),
        scanner_(spec.at("use_regex").flag_or(true) ? scanner_of(gpt2_expression()) : nullptr) {}

  void apply(Pieces& pieces) const override {
    Pieces result{{}, {}, pieces.at_text_start};
    result.text.reserve(pieces.text.size() + pieces.text.size() / 4);
    result.ends.reserve(scanner_ ? pieces.text.size() / 4 : pieces.ends.size());
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
  // The expression matches everywhere, so that its matches leave no gaps.
  void cut(std::string_view piece, Pieces& result) const {
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t end = scanner_ ? scanner_(piece, at).end : piece.size();
      append_stand_ins(piece.substr(at, end - at), result.text);
      result.ends.push_back(result.text.size());
      at = end;
    }
  }

  bool add_prefix_space_;
  Scanner scanner_;  // null: pieces stay whole
};

// As a post-processor ByteLevel only trims offsets, which nobody asks for here.
class ByteLevelPostProcessor : public PostProcessor {
 public:
  void apply(std::vector<std::int64_t>&) const override {}
};

// Bytes of tokens are joined over token borders before they are read as UTF-8; they become one token.
class ByteLevelStep : public WholeTokenStep {
 public:
  using WholeTokenStep::WholeTokenStep;

 private:
  void take(std::string_view token) override {
    append_bytes(token);
    hand_on(false);
  }
  void finish() override {
    hand_on(true);
    next().end_token();
  }

  void hand_on(bool at_end) {
    text_.clear();
    pending_.erase(0, append_valid_utf8(pending_, at_end, text_));
    if (!text_.empty()) next().part(text_);
  }

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

  std::string pending_;  // bytes of an unfinished character
  std::string text_;
};

class ByteLevelDecoder : public Decoder {
 public:
  TokenSink& start(TokenSink& end, std::vector<std::unique_ptr<TokenSink>>& steps) const override {
    return *steps.emplace_back(std::make_unique<ByteLevelStep>(end));
  }
};

// All kinds but the normalizer carry the same settings; those that a kind has no use for are checked all the same.
void check_settings(const JsonView& spec) {
  spec.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) (void)spec.at(key).flag_or(true);
}

}  // namespace

std::unique_ptr<const Normalizer> make_byte_level_normalizer(const JsonView& spec) {
  spec.allow_only({"type"});
  return std::make_unique<const ByteLevelNormalizer>();
}

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
