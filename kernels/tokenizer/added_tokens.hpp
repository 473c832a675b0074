// Added tokens: strings that are found in the text itself, before the model sees it; internal to the tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tokenizer/flat_map.hpp"
#include "kernels/tokenizer/json_view.hpp"

namespace kvroof {

struct AddedToken {
  std::uint32_t id;
  std::string content;
  bool single_word;  // only between characters that are no word characters, or the ends of the text
  bool left_strip;   // takes the white space before it
  bool right_strip;  // and after it
  bool normalized;   // is looked for in the normalised text, after those that are not
  bool special;
};

// Reads the list "added_tokens".
std::vector<AddedToken> read_added_tokens(const JsonView& spec);

// Finds added tokens in a text: the leftmost match wins, of those the longest. A match that is refused because it is no
// single word is not replaced by a shorter one.
class AddedTokenFinder {
 public:
  void add(const std::string& content, const AddedToken& token);

  // Part of a text, never empty: what an added token took, or ordinary text between (id absent). A token that begins in
  // white space which the token before it has stripped is found all the same, unless it strips to the left itself and
  // nothing is left of it, as in the reference library.
  struct Stretch {
    std::string_view text;
    std::optional<std::uint32_t> id;
  };
  [[nodiscard]] std::vector<Stretch> split(std::string_view text) const;

 private:
  struct Found {
    std::size_t end;
    std::uint32_t token;  // index into tokens_
  };
  struct Flags {
    std::uint32_t id;
    bool single_word, left_strip, right_strip;
  };
  [[nodiscard]] std::optional<Found> longest_match(std::string_view text, std::size_t at) const;

  std::vector<Flags> tokens_;
  std::array<bool, 256> first_byte_{};
  FlatMap<std::uint32_t> edges_;              // (node, byte) → node; node 0 is the root
  std::vector<std::uint32_t> endings_ = {0};  // of each node: index into tokens_ + 1, 0 when no token ends there
};

}  // namespace kvroof
