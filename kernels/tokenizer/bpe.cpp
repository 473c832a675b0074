#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct Merge {
  std::uint32_t rank;
  std::uint32_t id;  // of the merged token
};

constexpr std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

// Pairs of neighbours are packed ids: the identity would put all pairs of one left token into neighbouring buckets.
struct PairHash {
  std::size_t operator()(std::uint64_t key) const {
    key *= 0x9E3779B97F4A7C15U;
    return key ^ key >> 32;
  }
};

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

class BpeModel : public TokenModel {
 public:
  explicit BpeModel(const JsonView& spec);
  [[nodiscard]] const TokenIds& vocabulary() const override { return ids_; }
  [[nodiscard]] std::unique_ptr<PieceEncoder> start() const override;

  [[nodiscard]] std::uint32_t id_of_char(std::string_view text, const Utf8Sequence& c, std::size_t at) const {
    if (c.code_point < low_chars_.size()) return low_chars_[c.code_point];
    const auto found = ids_.find(std::string(text.substr(at, c.length)));
    return found == ids_.end() ? kNone : found->second;
  }
  [[nodiscard]] const Merge* merge_of(std::uint32_t left, std::uint32_t right) const {
    const auto found = merges_.find(pair_key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }
  // The id of a piece that is taken whole, before any merge.
  [[nodiscard]] std::optional<std::uint32_t> whole_piece(std::string_view piece) const {
    if (!ignore_merges_) return std::nullopt;
    const auto found = ids_.find(std::string(piece));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] std::uint32_t unknown() const { return unknown_; }
  [[nodiscard]] bool fuse_unknown() const { return fuse_unknown_; }

 private:
  void read_settings(const JsonView& spec);
  void read_vocabulary(const JsonView& vocab);
  void read_merges(const JsonView& merges);

  TokenIds ids_;
  std::array<std::uint32_t, 0x400> low_chars_;  // ids of one-character tokens; all stand-ins of ByteLevel are here
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;
  bool ignore_merges_ = false;
  std::uint32_t unknown_ = kNone;
  bool fuse_unknown_ = false;
};

BpeModel::BpeModel(const JsonView& spec) {
  read_vocabulary(spec.at("vocab"));
  read_merges(spec.at("merges"));
  read_settings(spec);
}

void BpeModel::read_settings(const JsonView& spec) {
  spec.allow_only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                   "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (!spec.at("dropout").is_null()) throw spec.at("dropout").unsupported("random merges are not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!spec.at(key).text_or("").empty()) throw spec.at(key).unsupported("a prefix or suffix is not supported");
  }
  if (spec.at("byte_fallback").flag_or(false)) throw spec.at("byte_fallback").unsupported("true is not supported");
  ignore_merges_ = spec.at("ignore_merges").flag_or(false);
  fuse_unknown_ = spec.at("fuse_unk").flag_or(false);
  if (const JsonView unknown = spec.at("unk_token"); !unknown.is_null()) {
    const auto found = ids_.find(unknown.text());
    if (found == ids_.end()) {
      throw unknown.damaged(fmt::format("the token {} is not in the vocabulary", in_quotes(unknown.text())));
    }
    unknown_ = found->second;
  }
}

void BpeModel::read_vocabulary(const JsonView& vocab) {
  low_chars_.fill(kNone);
  std::unordered_map<std::uint32_t, std::string_view> seen;
  vocab.for_each_member([&](const std::string& token, const JsonView& value) {
    if (token.empty()) throw value.damaged("a token may not be empty");
    const std::uint32_t id = value.id();
    const auto entry = ids_.emplace(token, id).first;
    const auto [first, fresh] = seen.emplace(id, entry->first);
    if (!fresh) throw value.damaged(fmt::format("the id {} is also that of {}", id, in_quotes(first->second)));
    const Utf8Sequence c = read_utf8(token, 0);
    if (c.length == token.size() && c.code_point < low_chars_.size()) low_chars_[c.code_point] = id;
  });
  if (ids_.empty()) throw vocab.damaged("the vocabulary is empty");
}

// A merge is "left right" or ["left", "right"].
std::pair<std::string, std::string> sides_of(const JsonView& merge) {
  if (merge.is_text()) {
    const std::string& text = merge.text();
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
      throw merge.damaged(fmt::format("expected two tokens with a space between them, found {}", in_quotes(text)));
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  const std::vector<JsonView> sides = merge.items();
  if (sides.size() != 2) throw merge.damaged(fmt::format("expected two tokens, found {}", sides.size()));
  return {sides[0].text(), sides[1].text()};
}

void BpeModel::read_merges(const JsonView& merges) {
  std::uint32_t rank = 0;
  merges.for_each_item([&](const JsonView& merge) {
    const auto [left, right] = sides_of(merge);
    const auto id_of = [&](const std::string& token) {
      const auto found = ids_.find(token);
      if (found == ids_.end()) {
        throw merge.damaged(fmt::format("the token {} of the merge is not in the vocabulary", in_quotes(token)));
      }
      return found->second;
    };
    // The last of equal merges counts, as in the reference library.
    merges_[pair_key(id_of(left), id_of(right))] = Merge{rank++, id_of(left + right)};
  });
}

// Merges pieces one after the other and remembers the result of short ones, since words repeat.
class BpeEncoder : public PieceEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<std::int64_t>& ids) override {
    if (const auto hit = cache_.find(piece); hit != cache_.end()) {
      ids.insert(ids.end(), hit->second.begin(), hit->second.end());
      return;
    }
    const std::size_t before = ids.size();
    if (const auto whole = model_.whole_piece(piece)) {
      ids.push_back(*whole);
    } else {
      merge(piece, ids);
    }
    if (piece.size() <= kLongestCached && cache_.size() < kMostCached) {
      cache_.emplace(piece, std::vector<std::int64_t>(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end()));
    }
  }

 private:
  static constexpr std::size_t kLongestCached = 64;       // bytes
  static constexpr std::size_t kMostCached = std::size_t{1} << 16;

  struct Symbol {
    std::uint32_t id;                // kNone: merged into the symbol before it
    std::uint32_t previous, next;    // kNone at the borders
  };
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t left;  // index of the left symbol
    std::uint32_t id;    // of the merged token
    friend bool operator>(const Candidate& a, const Candidate& b) {
      return std::pair(a.rank, a.left) > std::pair(b.rank, b.left);
    }
  };

  // Lowest rank first, of equal ones the leftmost: O(n log n) in the length of the piece.
  void merge(std::string_view piece, std::vector<std::int64_t>& ids) {
    split_into_symbols(piece);
    heap_.clear();
    for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i) push_candidate(i);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Candidate best = heap_.back();
      heap_.pop_back();
      apply(best);
    }
    for (const Symbol& s : symbols_) {
      if (s.id != kNone) ids.push_back(s.id);
    }
  }

  void split_into_symbols(std::string_view piece) {
    symbols_.clear();
    bool after_unknown = false;
    for (std::size_t at = 0; at < piece.size();) {
      const Utf8Sequence c = read_utf8(piece, at);
      std::uint32_t id = model_.id_of_char(piece, c, at);
      const bool is_unknown = id == kNone;
      if (is_unknown) id = model_.unknown();
      at += c.length;
      const bool fused = is_unknown && after_unknown && model_.fuse_unknown();
      after_unknown = is_unknown;
      if (id == kNone || fused) continue;
      const auto index = static_cast<std::uint32_t>(symbols_.size());
      symbols_.push_back({id, index - 1, index + 1});  // index 0 wraps to kNone
    }
    if (!symbols_.empty()) symbols_.back().next = kNone;
  }

  void push_candidate(std::uint32_t left) {
    const std::uint32_t right = symbols_[left].next;
    if (right == kNone) return;
    const Merge* merge = model_.merge_of(symbols_[left].id, symbols_[right].id);
    if (merge == nullptr) return;
    heap_.push_back({merge->rank, left, merge->id});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  // Candidates whose symbols have changed since are passed over.
  void apply(const Candidate& candidate) {
    Symbol& left = symbols_[candidate.left];
    if (left.id == kNone || left.next == kNone) return;
    Symbol& right = symbols_[left.next];
    const Merge* merge = model_.merge_of(left.id, right.id);
    if (merge == nullptr || merge->rank != candidate.rank) return;
    left.id = candidate.id;
    left.next = right.next;
    right.id = kNone;
    if (left.next != kNone) symbols_[left.next].previous = candidate.left;
    push_candidate(candidate.left);
    if (left.previous != kNone) push_candidate(left.previous);
  }

  const BpeModel& model_;
  std::unordered_map<std::string, std::vector<std::int64_t>, TextHash, std::equal_to<>> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

std::unique_ptr<PieceEncoder> BpeModel::start() const { return std::make_unique<BpeEncoder>(*this); }

}  // namespace

std::unique_ptr<const TokenModel> make_bpe_model(const JsonView& spec) {
  return std::make_unique<const BpeModel>(spec);
}

}  // namespace kvroof
