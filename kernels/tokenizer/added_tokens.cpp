#include "kernels/tokenizer/added_tokens.hpp"

#include <algorithm>

#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

constexpr std::uint64_t edge_key(std::uint32_t node, char byte) {
  return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

bool is_single_word(std::string_view text, std::size_t begin, std::size_t end) {
  if (end < text.size() && is_word_character(read_utf8(text, end).code_point)) return false;
  if (begin == 0) return true;
  std::size_t before = begin - 1;
  while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0U) == 0x80) --before;
  return !is_word_character(read_utf8(text, before).code_point);
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonView& spec) {
  std::vector<AddedToken> tokens;
  if (spec.is_null()) return tokens;
  spec.for_each_item([&](const JsonView& item) {
    item.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    if (item.at("content").text().empty()) throw item.damaged("an added token may not be empty");
    const bool special = item.at("special").flag_or(false);
    tokens.push_back({item.at("id").id(), item.at("content").text(), item.at("single_word").flag_or(false),
                      item.at("lstrip").flag_or(false), item.at("rstrip").flag_or(false),
                      item.at("normalized").flag_or(!special), special});
  });
  return tokens;
}

void AddedTokenFinder::add(const std::string& content, const AddedToken& token) {
  first_byte_[static_cast<unsigned char>(content.front())] = true;
  std::uint32_t node = 0;
  for (const char byte : content) {
    const auto [next, fresh] = edges_.insert(edge_key(node, byte), static_cast<std::uint32_t>(endings_.size()));
    if (fresh) endings_.push_back(0);
    node = next;
  }
  tokens_.push_back({token.id, token.single_word, token.left_strip, token.right_strip});
  endings_[node] = static_cast<std::uint32_t>(tokens_.size());
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::longest_match(std::string_view text, std::size_t at) const {
  std::optional<Found> longest;
  std::uint32_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const std::uint32_t* edge = edges_.find(edge_key(node, text[i]));
    if (edge == nullptr) break;
    node = *edge;
    if (endings_[node] > 0) longest = Found{i + 1, endings_[node] - 1};
  }
  return longest;
}

std::vector<AddedTokenFinder::Stretch> AddedTokenFinder::split(std::string_view text) const {
  std::vector<Stretch> stretches;
  if (tokens_.empty()) {
    if (!text.empty()) stretches.push_back({text, std::nullopt});
    return stretches;
  }
  std::size_t done = 0;         // where the last token ended
  std::size_t space_begin = 0;  // the white space that was last looked through
  std::size_t space_end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto found = first_byte_[static_cast<unsigned char>(text[at])] ? longest_match(text, at) : std::nullopt;
    if (!found) {
      ++at;
      continue;
    }
    const Flags& token = tokens_[found->token];
    std::size_t begin = at;
    std::size_t end = at = found->end;
    if (token.single_word && !is_single_word(text, begin, end)) continue;
    if (token.right_strip) {
      if (end < space_begin || end > space_end) {
        space_begin = end;
        space_end = white_space_after(text, end);
      }
      end = space_end;
    }
    if (token.left_strip) begin = std::max(white_space_before(text, begin, std::min(done, begin)), done);
    if (done < begin) stretches.push_back({text.substr(done, begin - done), std::nullopt});
    if (begin < end) stretches.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) stretches.push_back({text.substr(done), std::nullopt});
  return stretches;
}

}  // namespace kvroof
