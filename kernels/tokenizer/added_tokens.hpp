// Added tokens: strings that are found in the text itself, before the model sees it; internal to the tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/tokenizer/json_view.hpp"

namespace kvroof {

struct AddedToken {
  std::uint32_t id;
  std::string content;
  bool left_strip;   // takes the white space before it
  bool right_strip;  // and after it
  bool normalized;   // is looked for in the normalised text, after those that are not
  bool special;
};

// Reads the list "added_tokens".
std::vector<AddedToken> read_added_tokens(const JsonView& spec);

// Finds added tokens in a text: the leftmost match wins, of those the longest.
class AddedTokenFinder {
 public:
  void add(const std::string& content, const AddedToken& token);

  // Part of a text: what an added token took, or ordinary text between (id absent, never empty).
  struct Stretch {
    std::string_view text;
    std::optional<std::uint32_t> id;
  };
  [[nodiscard]] std::vector<Stretch> split(std::string_view text) const;

 private:
  struct Match {
    std::size_t length;
    std::uint32_t token;  // index into tokens_
  };
  struct Flags {
    std::uint32_t id;
    bool left_strip, right_strip;
  };
  [[nodiscard]] std::optional<Match> longest_match(std::string_view text, std::size_t at) const;

  std::vector<Flags> tokens_;
  std::array<bool, 256> first_byte_{};
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;    // (node, byte) → node; node 0 is the root
  std::unordered_map<std::uint32_t, std::uint32_t> endings_;  // node → index into tokens_
};

}  // namespace kvroof
