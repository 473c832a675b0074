// Merging: of all neighbours the pair of the lowest rank first, of equal ones the leftmost.
#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/tokenizer/bpe_model.hpp"
#include "kernels/tokenizer/unicode.hpp"
#include "kernels/tokenizer/word_cache.hpp"

namespace kvroof {
namespace {

class BpeEncoder : public PieceEncoder {
 public:
  BpeEncoder(const BpeModel& model, std::size_t text_bytes) : model_(model), cache_(text_bytes) {}

  void encode(std::string_view piece, std::vector<std::int64_t>& ids) override {
    if (piece.size() <= WordCache::kLongestWord) return encode_word(piece, true, ids);
    if (append_whole(piece, ids)) return;
    // Sentencepiece-style files make one piece of a whole text: it falls into words where no merge reaches across.
    std::size_t begin = 0;
    bool previous_known = false;
    char32_t previous = 0;
    for (std::size_t at = 0; at < piece.size();) {
      const Utf8Sequence c = read_utf8(piece, at);
      const bool known = model_.id_of_character(c.code_point) != kNoToken;
      if (known && previous_known && !model_.may_join(previous, c.code_point)) {
        encode_part(piece.substr(begin, at - begin), ids);
        begin = at;
      }
      previous = c.code_point;
      previous_known = known;
      at += c.length;
    }
    encode_part(piece.substr(begin), ids);
  }

 private:
  struct Symbol {
    std::uint32_t id;
    std::uint32_t previous, next;  // kNoToken at the borders; for merge_by_heap
    Merge with_next;
  };

  // A piece that is in the vocabulary is taken whole, before any merge, where the file says so.
  bool append_whole(std::string_view piece, std::vector<std::int64_t>& ids) const {
    if (!model_.ignore_merges()) return false;
    const auto found = model_.vocabulary().find(piece);
    if (found == model_.vocabulary().end()) return false;
    ids.push_back(found->second);
    return true;
  }

  void encode_part(std::string_view part, std::vector<std::int64_t>& ids) {
    if (part.size() <= WordCache::kLongestWord && !model_.ignore_merges()) {
      encode_word(part, false, ids);
    } else {
      merge(part, ids);
    }
  }

  void encode_word(std::string_view word, bool is_piece, std::vector<std::int64_t>& ids) {
    WordCache::Entry& entry = cache_.place_of(word);
    if (entry.holds(word)) {
      ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
      return;
    }
    const std::size_t before = ids.size();
    if (!is_piece || !append_whole(word, ids)) merge(word, ids);
    entry.store(word, std::span(ids).subspan(before));
  }

  void merge(std::string_view text, std::vector<std::int64_t>& ids) {
    constexpr std::size_t kFewSymbols = 64;  // below, looking at all pairs each time is faster than a heap
    split_into_symbols(text);
    for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) {
      symbols_[i].with_next = model_.merge_of(symbols_[i].id, symbols_[i + 1].id);
    }
    if (symbols_.size() <= kFewSymbols) {
      merge_by_scan();
      for (const Symbol& s : symbols_) ids.push_back(s.id);
    } else {
      merge_by_heap();
      for (std::uint32_t i = 0; i != kNoToken; i = symbols_[i].next) ids.push_back(symbols_[i].id);
    }
  }

  void split_into_symbols(std::string_view text) {
    check(text.size() < kNoToken, "a piece of text is smaller than 4 GiB");
    symbols_.clear();
    // An unknown token waits for the next known character, as in the reference library: bytes may overtake it.
    std::uint32_t waiting = kNoToken;
    const auto flush = [&] {
      if (waiting != kNoToken) symbols_.push_back({waiting, 0, 0, {}});
      waiting = kNoToken;
    };
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Sequence c = read_utf8(text, at);
      const std::string_view character = text.substr(at, c.length);
      at += c.length;
      if (const std::uint32_t id = model_.id_of_character(c.code_point); id != kNoToken) {
        flush();
        symbols_.push_back({id, 0, 0, {}});
      } else if (model_.has_bytes_of(character)) {
        for (const char byte : character) symbols_.push_back({model_.id_of_byte(byte), 0, 0, {}});
      } else {
        if (!model_.fuse_unknown()) flush();
        waiting = model_.unknown(character);
      }
    }
    flush();
  }

  // O(n²) in the number of symbols.
  void merge_by_scan() {
    while (true) {
      const auto best = std::min_element(symbols_.begin(), symbols_.end(), [](const Symbol& a, const Symbol& b) {
        return a.with_next.rank < b.with_next.rank;
      });
      if (best == symbols_.end() || best->with_next.rank == kNoToken) return;
      best->id = best->with_next.id;
      symbols_.erase(best + 1);
      best->with_next = best + 1 == symbols_.end() ? Merge{} : model_.merge_of(best->id, (best + 1)->id);
      if (best != symbols_.begin()) (best - 1)->with_next = model_.merge_of((best - 1)->id, best->id);
    }
  }

  // O(n log n). The heap holds rank and index of the left symbol; an entry whose symbol has changed since is stale.
  void merge_by_heap() {
    const auto count = static_cast<std::uint32_t>(symbols_.size());
    heap_.clear();
    for (std::uint32_t i = 0; i < count; ++i) {
      symbols_[i].previous = i - 1;  // index 0 wraps to kNoToken
      symbols_[i].next = i + 1 == count ? kNoToken : i + 1;
      if (symbols_[i].with_next.rank != kNoToken) heap_.push_back(entry_of(i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const std::uint64_t entry = heap_.back();
      heap_.pop_back();
      const auto left = static_cast<std::uint32_t>(entry);
      if (symbols_[left].with_next.rank != entry >> 32) continue;
      Symbol& symbol = symbols_[left];
      Symbol& right = symbols_[symbol.next];
      symbol.id = symbol.with_next.id;
      symbol.next = right.next;
      right.with_next = {};
      if (symbol.next != kNoToken) symbols_[symbol.next].previous = left;
      update(left);
      if (symbol.previous != kNoToken) update(symbol.previous);
    }
  }

  [[nodiscard]] std::uint64_t entry_of(std::uint32_t index) const {
    return std::uint64_t{symbols_[index].with_next.rank} << 32 | index;
  }

  void update(std::uint32_t index) {
    Symbol& symbol = symbols_[index];
    symbol.with_next = symbol.next == kNoToken ? Merge{} : model_.merge_of(symbol.id, symbols_[symbol.next].id);
    if (symbol.with_next.rank == kNoToken) return;
    heap_.push_back(entry_of(index));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  const BpeModel& model_;
  WordCache cache_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> heap_;
};

}  // namespace

std::unique_ptr<PieceEncoder> BpeModel::start(std::size_t bytes) const {
  return std::make_unique<BpeEncoder>(*this, bytes);
}

}  // namespace kvroof
