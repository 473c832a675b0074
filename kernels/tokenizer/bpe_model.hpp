// The data of a byte-pair encoding: vocabulary, ranked merges, and where no merge can reach across.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "kernels/tokenizer/flat_map.hpp"
#include "kernels/tokenizer/parts.hpp"

namespace kvroof {

constexpr std::uint32_t kNoToken = std::numeric_limits<std::uint32_t>::max();

struct Merge {
  std::uint32_t rank = kNoToken;  // kNoToken: the pair does not merge
  std::uint32_t id = kNoToken;    // of the merged token
};

class BpeModel : public TokenModel {
 public:
  explicit BpeModel(const JsonView& spec);
  [[nodiscard]] const TokenIds& vocabulary() const override { return ids_; }
  [[nodiscard]] std::unique_ptr<PieceEncoder> start(std::size_t bytes) const override;

  // The token of a single character, or kNoToken.
  [[nodiscard]] std::uint32_t id_of_character(char32_t c) const {
    const std::uint32_t* id = characters_.find(c);
    return id == nullptr ? kNoToken : *id;
  }
  [[nodiscard]] Merge merge_of(std::uint32_t left, std::uint32_t right) const {
    const Merge* merge = merges_.find(std::uint64_t{left} << 32 | right);
    return merge == nullptr ? Merge{} : *merge;
  }
  // Whether some merge may join a token that ends in `left` and one that begins with `right`. Where none does, a text
  // can be cut without changing its ids, if both are tokens by themselves.
  [[nodiscard]] bool may_join(char32_t left, char32_t right) const {
    return joins_[kClasses * class_of(left) + class_of(right)];
  }
  [[nodiscard]] bool ignore_merges() const { return ignore_merges_; }
  // The tokens <0x00> … of the bytes of a character, where byte_fallback asks for them and all of them exist.
  [[nodiscard]] bool has_bytes_of(std::string_view character) const;
  [[nodiscard]] std::uint32_t id_of_byte(char byte) const { return bytes_[static_cast<std::uint8_t>(byte)]; }
  // The unknown token, kNoToken where the file names none. Throws Error when it names one that does not exist.
  [[nodiscard]] std::uint32_t unknown(std::string_view character) const;
  [[nodiscard]] bool fuse_unknown() const { return fuse_unknown_; }

 private:
  void read_settings(const JsonView& spec);
  void read_vocabulary(const JsonView& vocab);
  void read_merges(const JsonView& merges);

  // ASCII, Latin-1 and the stand-ins of ByteLevel have a class each, as has ▁; all others share the rest.
  static constexpr std::size_t kClasses = 512;
  static constexpr std::size_t class_of(char32_t c) {
    constexpr char32_t kOwnClasses = 0x180;
    if (c < kOwnClasses) return c;
    return c == U'▁' ? kClasses - 1 : kOwnClasses + c % (kClasses - 1 - kOwnClasses);
  }

  TokenIds ids_;
  FlatMap<std::uint32_t> characters_;
  FlatMap<Merge> merges_;
  std::bitset<kClasses * kClasses> joins_;
  std::array<std::uint32_t, 256> bytes_;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  std::string unknown_name_;
  std::uint32_t unknown_ = kNoToken;
};

}  // namespace kvroof
