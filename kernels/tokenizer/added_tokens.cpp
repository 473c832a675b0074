#include "kernels/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

// Where the white space that ends at `end` begins, not before `limit`. The text is valid UTF-8.
std::size_t white_space_before(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    std::size_t begin = end - 1;
    while (begin > limit && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80) --begin;
    if (!is_white_space(read_utf8(text, begin).code_point)) break;
    end = begin;
  }
  return end;
}

std::size_t white_space_after(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const Utf8Sequence c = read_utf8(text, at);
    if (!is_white_space(c.code_point)) break;
    at += c.length;
  }
  return at;
}

constexpr std::uint64_t edge_key(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonView& spec) {
  std::vector<AddedToken> tokens;
  if (spec.is_null()) return tokens;
  spec.for_each_item([&](const JsonView& item) {
    item.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    if (item.at("content").text().empty()) throw item.damaged("an added token may not be empty");
    if (item.at("single_word").flag_or(false)) throw item.at("single_word").unsupported("true is not supported");
    const bool special = item.at("special").flag_or(false);
    tokens.push_back({item.at("id").id(), item.at("content").text(), item.at("lstrip").flag_or(false),
                      item.at("rstrip").flag_or(false), item.at("normalized").flag_or(!special), special});
  });
  return tokens;
}

void AddedTokenFinder::add(const std::string& content, const AddedToken& token) {
  first_byte_[static_cast<unsigned char>(content.front())] = true;
  std::uint32_t node = 0;
  for (const char byte : content) {
    const auto fresh = static_cast<std::uint32_t>(edges_.size() + 1);
    node = edges_.emplace(edge_key(node, byte), fresh).first->second;
  }
  endings_[node] = static_cast<std::uint32_t>(tokens_.size());
  tokens_.push_back({token.id, token.left_strip, token.right_strip});
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::longest_match(std::string_view text, std::size_t at) const {
  std::optional<Match> longest;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(edge_key(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (const auto ending = endings_.find(node); ending != endings_.end()) longest = Match{i + 1 - at, ending->second};
  }
  return longest;
}

std::vector<AddedTokenFinder::Stretch> AddedTokenFinder::split(std::string_view text) const {
  std::vector<Stretch> stretches;
  std::size_t done = 0;  // all before it is in a stretch
  for (std::size_t at = 0; at < text.size();) {
    const auto match = first_byte_[static_cast<unsigned char>(text[at])] ? longest_match(text, at) : std::nullopt;
    if (!match) {
      ++at;
      continue;
    }
    const Flags& token = tokens_[match->token];
    const std::size_t match_end = at + match->length;
    // A match may begin in white space that the token before it took; the search goes on where the match ends.
    const std::size_t begin = token.left_strip ? white_space_before(text, at, std::min(done, at)) : at;
    const std::size_t end = token.right_strip ? white_space_after(text, match_end) : match_end;
    if (done < begin) stretches.push_back({text.substr(done, begin - done), std::nullopt});
    stretches.push_back({text.substr(begin, end - begin), token.id});
    done = std::max(done, end);
    at = match_end;
  }
  if (done < text.size()) stretches.push_back({text.substr(done), std::nullopt});
  return stretches;
}

}  // namespace kvroof
