// Unigram models (sentencepiece): of all ways to cut a piece into tokens the one with the highest sum of scores.
#include <algorithm>
#include <array>
#include <limits>

#include "kernels/tokenizer/flat_map.hpp"
#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kNoToken = std::numeric_limits<std::uint32_t>::max();

class UnigramModel : public TokenModel {
 public:
  explicit UnigramModel(const JsonView& spec) {
    spec.allow_only({"type", "unk_id", "byte_fallback", "vocab"});
    read_vocabulary(spec.at("vocab"));
    if (const JsonView unknown = spec.at("unk_id"); !unknown.is_null()) {
      unknown_ = unknown.id();
      if (unknown_ >= scores_.size()) {
        throw unknown.damaged(fmt::format("there is no token {}, the vocabulary has {}", unknown_, scores_.size()));
      }
    }
    bytes_.fill(kNoToken);
    if (!spec.at("byte_fallback").flag_or(false)) return;
    for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
      const auto found = ids_.find(fmt::format("<0x{:02X}>", byte));
      if (found != ids_.end()) bytes_[byte] = found->second;
    }
  }

  [[nodiscard]] const TokenIds& vocabulary() const override { return ids_; }
  [[nodiscard]] std::unique_ptr<PieceEncoder> start(std::size_t bytes) const override;

  // Calls f(token, its length) for each token that the text begins with at `at`, the shortest first.
  template <class F>
  void for_each_prefix(std::string_view text, std::size_t at, F f) const {
    std::uint32_t node = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
      const std::uint32_t* next = edges_.find(edge_key(node, text[i]));
      if (next == nullptr) return;
      node = *next;
      if (endings_[node] != kNoToken) f(endings_[node], i + 1 - at);
    }
  }

  [[nodiscard]] double score(std::uint32_t id) const { return scores_[id]; }
  [[nodiscard]] double unknown_score() const { return unknown_score_; }
  [[nodiscard]] std::uint32_t unknown() const {
    if (unknown_ == kNoToken) {
      throw Error("the text has a character that is not in the vocabulary, and tokenizer.json names no unknown token");
    }
    return unknown_;
  }
  [[nodiscard]] bool is_unknown(std::uint32_t id) const { return id == unknown_; }

  // The ids of a text that is no token of the best cut: a token all the same, its bytes, or the unknown token.
  void append_unknown(std::string_view text, std::vector<std::int64_t>& ids) const {
    const auto id_of_byte = [&](char c) { return bytes_[static_cast<std::uint8_t>(c)]; };
    if (const auto found = ids_.find(text); found != ids_.end()) {
      ids.push_back(found->second);
    } else if (std::all_of(text.begin(), text.end(), [&](char c) { return id_of_byte(c) != kNoToken; })) {
      for (const char c : text) ids.push_back(id_of_byte(c));
    } else {
      ids.push_back(unknown());
    }
  }

 private:
  static constexpr std::uint64_t edge_key(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  // A list of [token, score]; the id of a token is its place.
  void read_vocabulary(const JsonView& vocab) {
    constexpr double kUnknownPenalty = 10;  // below the lowest score, as in sentencepiece
    double lowest = std::numeric_limits<double>::infinity();
    vocab.for_each_item([&](const JsonView& item) {
      const std::vector<JsonView> pair = item.items();
      if (pair.size() != 2) throw item.damaged("expected a token and its score");
      const auto id = static_cast<std::uint32_t>(scores_.size());
      const std::string& token = pair[0].text();
      if (token.empty()) throw item.damaged("a token may not be empty");
      if (!ids_.emplace(token, id).second) throw item.damaged(fmt::format("{} is listed twice", in_quotes(token)));
      scores_.push_back(pair[1].number());
      lowest = std::min(lowest, scores_.back());
      add(token, id);
    });
    if (ids_.empty()) throw vocab.damaged("the vocabulary is empty");
    unknown_score_ = lowest - kUnknownPenalty;
  }

  void add(std::string_view token, std::uint32_t id) {
    std::uint32_t node = 0;
    for (const char byte : token) {
      const auto [next, fresh] = edges_.insert(edge_key(node, byte), static_cast<std::uint32_t>(endings_.size()));
      if (fresh) endings_.push_back(kNoToken);
      node = next;
    }
    endings_[node] = id;
  }

  TokenIds ids_;
  std::vector<double> scores_;
  FlatMap<std::uint32_t> edges_;                     // (node, byte) → node of a trie; node 0 is the root
  std::vector<std::uint32_t> endings_ = {kNoToken};  // of each node: the token that ends there
  std::array<std::uint32_t, 256> bytes_;
  std::uint32_t unknown_ = kNoToken;
  double unknown_score_ = 0;
};

// Viterbi: the best cut of what lies before each character.
class UnigramEncoder : public PieceEncoder {
 public:
  explicit UnigramEncoder(const UnigramModel& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<std::int64_t>& ids) override {
    find_best(piece);
    // Neighbours that are unknown count as one.
    std::vector<Span>& spans = spans_;
    spans.clear();
    for (std::size_t end = piece.size(); end > 0; end = best_[end].begin) {
      const bool unknown = model_.is_unknown(best_[end].id);
      if (unknown && !spans.empty() && spans.back().unknown) {
        spans.back().begin = best_[end].begin;
      } else {
        spans.push_back({best_[end].begin, end, best_[end].id, unknown});
      }
    }
    for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
      if (span->unknown) {
        model_.append_unknown(piece.substr(span->begin, span->end - span->begin), ids);
      } else {
        ids.push_back(span->id);
      }
    }
  }

 private:
  struct Best {
    double score = 0;
    std::size_t begin = kUnreached;  // of the last token
    std::uint32_t id = 0;
  };
  struct Span {
    std::size_t begin, end;
    std::uint32_t id;
    bool unknown;
  };
  static constexpr std::size_t kUnreached = std::numeric_limits<std::size_t>::max();

  void find_best(std::string_view piece) {
    best_.assign(piece.size() + 1, Best{});
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t length = read_utf8(piece, at).length;
      bool has_single = false;
      model_.for_each_prefix(piece, at, [&](std::uint32_t id, std::size_t token_length) {
        offer(at, at + token_length, id, model_.score(id));
        has_single = has_single || token_length == length;
      });
      if (!has_single) offer(at, at + length, model_.unknown(), model_.unknown_score());
      at += length;
    }
  }

  void offer(std::size_t begin, std::size_t end, std::uint32_t id, double score) {
    const double sum = score + best_[begin].score;
    if (best_[end].begin == kUnreached || sum > best_[end].score) best_[end] = {sum, begin, id};
  }

  const UnigramModel& model_;
  std::vector<Best> best_;  // of each byte
  std::vector<Span> spans_;
};

std::unique_ptr<PieceEncoder> UnigramModel::start(std::size_t) const { return std::make_unique<UnigramEncoder>(*this); }

}  // namespace

std::unique_ptr<const TokenModel> make_unigram_model(const JsonView& spec) {
  return std::make_unique<const UnigramModel>(spec);
}

}  // namespace kvroof
