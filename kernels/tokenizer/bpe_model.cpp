#include "kernels/tokenizer/bpe_model.hpp"

#include <algorithm>
#include <utility>

#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

// A merge is "left right" or ["left", "right"].
std::pair<std::string_view, std::string_view> sides_of(const JsonView& merge, std::vector<JsonView>& sides) {
  if (merge.is_text()) {
    const std::string_view text = merge.text();
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      throw merge.damaged(fmt::format("expected two tokens with a space between them, found {}", in_quotes(text)));
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  sides = merge.items();
  if (sides.size() != 2) throw merge.damaged(fmt::format("expected two tokens, found {}", sides.size()));
  return {sides[0].text(), sides[1].text()};
}

char32_t first_character(std::string_view text) { return read_utf8(text, 0).code_point; }

char32_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80) --at;
  return read_utf8(text, at).code_point;
}

}  // namespace

BpeModel::BpeModel(const JsonView& spec) {
  read_vocabulary(spec.at("vocab"));
  read_merges(spec.at("merges"));
  read_settings(spec);
}

void BpeModel::read_settings(const JsonView& spec) {
  spec.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                   "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (const JsonView dropout = spec.at("dropout"); !dropout.is_null() && dropout.number() != 0) {
    throw dropout.unsupported("random merges are not supported; set it to null");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!spec.at(key).text_or("").empty()) throw spec.at(key).unsupported("a prefix or suffix is not supported");
  }
  ignore_merges_ = spec.at("ignore_merges").flag_or(false);
  fuse_unknown_ = spec.at("fuse_unk").flag_or(false);
  bytes_.fill(kNoToken);
  if (spec.at("byte_fallback").flag_or(false)) {
    for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
      const auto found = ids_.find(fmt::format("<0x{:02X}>", byte));
      if (found != ids_.end()) bytes_[byte] = found->second;
    }
  }
  unknown_name_ = spec.at("unk_token").text_or("");
  if (const auto found = ids_.find(unknown_name_); found != ids_.end()) unknown_ = found->second;
}

void BpeModel::read_vocabulary(const JsonView& vocab) {
  std::unordered_map<std::uint32_t, std::string_view> seen;
  ids_.reserve(vocab.size());
  seen.reserve(vocab.size());
  vocab.for_each_member([&](const std::string& token, const JsonView& value) {
    if (token.empty()) throw value.damaged("a token may not be empty");
    const std::uint32_t id = value.id();
    const auto entry = ids_.emplace(token, id).first;
    const auto [first, fresh] = seen.emplace(id, entry->first);
    if (!fresh) throw value.damaged(fmt::format("the id {} is also that of {}", id, in_quotes(first->second)));
    const Utf8Sequence c = read_utf8(token, 0);
    if (c.length == token.size()) characters_.insert(c.code_point, id);
  });
  if (ids_.empty()) throw vocab.damaged("the vocabulary is empty");
}

void BpeModel::read_merges(const JsonView& merges) {
  constexpr std::string_view kComment = "#version";  // the first line of merges.txt, which some files keep
  std::uint32_t rank = 0;
  std::string joined;
  std::vector<JsonView> sides;
  merges_.reserve(merges.size());
  merges.for_each_item([&](const JsonView& merge) {
    if (merge.is_text() && merge.text().starts_with(kComment)) return;
    const auto [left, right] = sides_of(merge, sides);
    const auto id_of = [&](std::string_view token) {
      const auto found = ids_.find(token);
      if (found == ids_.end()) {
        throw merge.damaged(fmt::format("the token {} of the merge is not in the vocabulary", in_quotes(token)));
      }
      return found->second;
    };
    joined.assign(left).append(right);
    const std::uint64_t pair = std::uint64_t{id_of(left)} << 32 | id_of(right);
    const Merge made{rank++, id_of(joined)};
    const auto [known, fresh] = merges_.insert(pair, made);
    if (!fresh) known = made;  // the last of equal merges counts, as in the reference library
    joins_.set(kClasses * class_of(last_character(left)) + class_of(first_character(right)));
  });
}

bool BpeModel::has_bytes_of(std::string_view character) const {
  return std::all_of(character.begin(), character.end(), [&](char c) { return id_of_byte(c) != kNoToken; });
}

std::uint32_t BpeModel::unknown(std::string_view character) const {
  if (unknown_ == kNoToken && !unknown_name_.empty()) {
    throw Error(
        fmt::format("the text has the character {}, which is not in the vocabulary, and the unknown token {} "
                    "of tokenizer.json is not in it either",
                    in_quotes(character), in_quotes(unknown_name_)));
  }
  return unknown_;
}

std::unique_ptr<const TokenModel> make_bpe_model(const JsonView& spec) {
  return std::make_unique<const BpeModel>(spec);
}

}  // namespace kvroof
