// Pre-tokenizers that cut pieces at what a pattern finds.
#include <algorithm>
#include <utility>

#include "kernels/tokenizer/parts.hpp"
#include "kernels/tokenizer/pattern.hpp"
#include "kernels/tokenizer/unicode.hpp"

namespace kvroof {
namespace {

// What becomes of a match: a piece of its own, nothing, part of the piece before or after it, or of a run of matches.
enum class Behavior : std::uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// A match, or what lies between two.
struct Part {
  std::size_t begin, end;
  bool is_match;
};

// Joins each part for which joins(part, part before it) holds with the one before it.
template <class Joins>
void join_parts(std::vector<Part>& parts, Joins joins) {
  std::size_t kept = 0;
  bool previous_match = false;
  for (const Part& part : parts) {
    if (kept > 0 && joins(part.is_match, previous_match)) {
      parts[kept - 1].end = part.end;
    } else {
      parts[kept++] = part;
    }
    previous_match = part.is_match;
  }
  parts.resize(kept);
}

void apply_behavior(Behavior behavior, std::vector<Part>& parts) {
  switch (behavior) {
    case Behavior::kIsolated:
      return;
    case Behavior::kRemoved:
      std::erase_if(parts, [](const Part& p) { return p.is_match; });
      return;
    case Behavior::kContiguous:
      join_parts(parts, [](bool match, bool before) { return match == before; });
      return;
    case Behavior::kMergedWithPrevious:
      join_parts(parts, [](bool match, bool before) { return match && !before; });
      return;
    case Behavior::kMergedWithNext: {
      // The same from the other end.
      std::size_t kept = parts.size();
      bool next_match = false;
      for (std::size_t i = parts.size(); i-- > 0;) {
        const Part part = parts[i];
        if (kept < parts.size() && part.is_match && !next_match) {
          parts[kept].begin = part.begin;
        } else {
          parts[--kept] = part;
        }
        next_match = part.is_match;
      }
      parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(kept));
      return;
    }
  }
}

class Split : public PreTokenizer {
 public:
  Split(std::unique_ptr<const TextPattern> pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  // Removed parts close up in place: what is kept never moves to the right.
  void apply(Pieces& pieces) const override {
    std::vector<std::size_t> ends;
    ends.reserve(pieces.ends.size());
    std::vector<Match> matches;
    std::vector<Part> parts;
    std::size_t begin = 0;
    std::size_t written = 0;
    for (const std::size_t end : pieces.ends) {
      find_parts(std::string_view(pieces.text).substr(begin, end - begin), matches, parts);
      for (const Part& part : parts) {
        const std::size_t length = part.end - part.begin;
        if (length == 0) continue;
        if (written == 0 && begin + part.begin > 0) pieces.at_text_start = false;
        if (written != begin + part.begin) {
          std::copy_n(pieces.text.begin() + static_cast<std::ptrdiff_t>(begin + part.begin), length,
                      pieces.text.begin() + static_cast<std::ptrdiff_t>(written));
        }
        written += length;
        ends.push_back(written);
      }
      begin = end;
    }
    pieces.text.resize(written);
    pieces.ends = std::move(ends);
  }

 private:
  void find_parts(std::string_view piece, std::vector<Match>& matches, std::vector<Part>& parts) const {
    matches.clear();
    parts.clear();
    pattern_->find_all(piece, matches);
    std::size_t done = 0;
    for (const Match& match : matches) {
      if (match.begin > done) parts.push_back({done, match.begin, invert_});
      parts.push_back({match.begin, match.end, !invert_});
      done = match.end;
    }
    if (done < piece.size()) parts.push_back({done, piece.size(), invert_});
    apply_behavior(behavior_, parts);
  }

  std::unique_ptr<const TextPattern> pattern_;
  Behavior behavior_;
  bool invert_;
};

Behavior behavior_of(const JsonView& spec, std::string_view fallback) {
  constexpr std::pair<std::string_view, Behavior> kNames[] = {
      {"Isolated", Behavior::kIsolated},
      {"Removed", Behavior::kRemoved},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous},
  };
  const std::string name = spec.text_or(fallback);
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  throw spec.unsupported(
      fmt::format("{} is not supported; Isolated, Removed, MergedWithPrevious, MergedWithNext and "
                  "Contiguous are",
                  in_quotes(name)));
}

std::unique_ptr<const PreTokenizer> split_at(bool (*holds)(char32_t), Behavior behavior) {
  return std::make_unique<const Split>(make_character_pattern(holds), behavior, false);
}

// Runs of word characters, and runs of what is neither such nor white space.
class WordPattern : public TextPattern {
 public:
  void find_all(std::string_view text, std::vector<Match>& matches) const override {
    enum class Kind : std::uint8_t { kSpace, kWord, kOther };
    Kind previous = Kind::kSpace;
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Sequence c = read_utf8(text, at);
      const Kind kind = is_word_character(c.code_point) ? Kind::kWord
                        : is_white_space(c.code_point)  ? Kind::kSpace
                                                        : Kind::kOther;
      if (kind != Kind::kSpace) {
        if (kind != previous) matches.push_back({at, at});
        matches.back().end = at + c.length;
      }
      previous = kind;
      at += c.length;
    }
  }
};

// Both cuts of BertPreTokenizer.
class BertPreTokenizer : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    spaces_->apply(pieces);
    punctuation_->apply(pieces);
  }

 private:
  std::unique_ptr<const PreTokenizer> spaces_ = split_at(is_white_space, Behavior::kRemoved);
  std::unique_ptr<const PreTokenizer> punctuation_ = split_at(is_splitting_punctuation, Behavior::kIsolated);
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(std::size_t length) : length_(length) {}
  void apply(Pieces& pieces) const override {
    std::vector<std::size_t> ends;
    std::size_t at = 0;
    for (const std::size_t end : pieces.ends) {
      for (std::size_t characters = 0; at < end;) {
        at += read_utf8(pieces.text, at).length;
        if (++characters % length_ == 0 || at == end) ends.push_back(at);
      }
    }
    pieces.ends = std::move(ends);
  }

 private:
  std::size_t length_;  // characters
};

}  // namespace

std::unique_ptr<const PreTokenizer> make_split(const JsonView& spec) {
  spec.allow_only({"type", "pattern", "behavior", "invert"});
  return std::make_unique<const Split>(make_pattern(spec.at("pattern")), behavior_of(spec.at("behavior"), ""),
                                       spec.at("invert").flag_or(false));
}

std::unique_ptr<const PreTokenizer> make_digits(const JsonView& spec) {
  spec.allow_only({"type", "individual_digits"});
  return split_at(is_splitting_number,
                  spec.at("individual_digits").flag_or(false) ? Behavior::kIsolated : Behavior::kContiguous);
}

std::unique_ptr<const PreTokenizer> make_punctuation(const JsonView& spec) {
  spec.allow_only({"type", "behavior"});
  return split_at(is_splitting_punctuation, behavior_of(spec.at("behavior"), "Isolated"));
}

std::unique_ptr<const PreTokenizer> make_whitespace(const JsonView& spec) {
  spec.allow_only({"type"});
  return std::make_unique<const Split>(std::make_unique<const WordPattern>(), Behavior::kRemoved, true);
}

std::unique_ptr<const PreTokenizer> make_whitespace_split(const JsonView& spec) {
  spec.allow_only({"type"});
  return split_at(is_white_space, Behavior::kRemoved);
}

std::unique_ptr<const PreTokenizer> make_bert_pre_tokenizer(const JsonView& spec) {
  spec.allow_only({"type"});
  return std::make_unique<const BertPreTokenizer>();
}

std::unique_ptr<const PreTokenizer> make_character_split(const JsonView& spec) {
  spec.allow_only({"type", "delimiter"});
  std::string delimiter;
  append_utf8(spec.at("delimiter").character(), delimiter);
  return std::make_unique<const Split>(make_literal(std::move(delimiter)), Behavior::kRemoved, false);
}

std::unique_ptr<const PreTokenizer> make_fixed_length(const JsonView& spec) {
  spec.allow_only({"type", "length"});
  constexpr std::size_t kUsual = 5;
  const std::size_t length = spec.at("length").count_or(kUsual);
  if (length == 0) throw spec.at("length").damaged("expected a length above 0");
  return std::make_unique<const FixedLength>(length);
}

}  // namespace kvroof
