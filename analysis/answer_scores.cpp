#include "analysis/answer_scores.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "sim/core/error.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

bool is_ascii_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

// One character of valid UTF-8.
struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
};

Character character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<std::uint8_t>(text[at]);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  std::uint32_t code = first & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) code = code << 6U | (static_cast<std::uint8_t>(text[at + i]) & 0x3fU);
  return {code, bytes};
}

struct Range {
  std::uint32_t first, last;
};

bool is_in(std::span<const Range> ranges, std::uint32_t code) {
  return std::ranges::any_of(ranges, [code](const Range& r) { return code >= r.first && code <= r.last; });
}

// White space of Unicode and the separators 0x1c … 0x1f, where Python's str.split() cuts.
constexpr std::array<Range, 10> kSpaces = {{{0x09, 0x0d},
                                            {0x1c, 0x20},
                                            {0x85, 0x85},
                                            {0xa0, 0xa0},
                                            {0x1680, 0x1680},
                                            {0x2000, 0x200a},
                                            {0x2028, 0x2029},
                                            {0x202f, 0x202f},
                                            {0x205f, 0x205f},
                                            {0x3000, 0x3000}}};

// Signs that are not part of a word, so that an article beside them stands alone: dashes, quotes, brackets, currencies,
// arrows and what else texts have. Once ASCII punctuation is gone, everything but these and white space is of a word.
constexpr std::array<Range, 16> kSigns = {{{0x00, 0x2f},     {0x7f, 0x9f},     {0xa1, 0xa9},     {0xab, 0xb1},
                                           {0xb4, 0xb4},     {0xb6, 0xb8},     {0xbb, 0xbb},     {0xbf, 0xbf},
                                           {0xd7, 0xd7},     {0xf7, 0xf7},     {0x200b, 0x206f}, {0x20a0, 0x20cf},
                                           {0x2190, 0x245f}, {0x2500, 0x2775}, {0x3001, 0x3004}, {0x3008, 0x3020}}};

bool is_article(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

// Words between white space. An article ends a word where it stands, as the pattern \b(a|an|the)\b that is replaced by
// a blank does.
class Normaliser {
 public:
  void push(std::string_view bytes, std::uint32_t code) {
    if (is_in(kSpaces, code)) {
      end_word();
    } else if (is_in(kSigns, code)) {
      end_run();
      word_ += bytes;
    } else {
      run_ += bytes;
    }
  }
  std::vector<std::string> words() {
    end_word();
    return std::move(words_);
  }

 private:
  // A run of letters and digits within a word is over.
  void end_run() {
    if (is_article(run_)) {
      keep(word_);
    } else {
      word_ += run_;
    }
    run_.clear();
  }
  void end_word() {
    end_run();
    keep(word_);
  }
  void keep(std::string& word) {
    if (!word.empty()) words_.push_back(word);
    word.clear();
  }

  std::vector<std::string> words_;
  std::string word_, run_;  // of the word so far, and of what may be an article
};

std::vector<std::string> normalised_words(std::string_view text) {
  std::string kept = lower_case(text);
  std::erase_if(kept, is_ascii_punctuation);
  Normaliser normaliser;
  for (std::size_t at = 0; at < kept.size();) {
    const Character next = character_at(kept, at);
    normaliser.push(std::string_view(kept).substr(at, next.bytes), next.code);
    at += next.bytes;
  }
  return normaliser.words();
}

// Both sorted.
double f1_of(const std::vector<std::string>& answer, const std::vector<std::string>& reference) {
  std::vector<std::string> common;
  std::ranges::set_intersection(answer, reference, std::back_inserter(common));
  if (common.empty()) return 0;
  const auto same = static_cast<double>(common.size());
  const double precision = same / static_cast<double>(answer.size());
  const double recall = same / static_cast<double>(reference.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

AnswerScores answer_scores(std::string_view answer, std::span<const std::string> references) {
  check(!references.empty(), "an answer is compared with references");
  const std::string lower = lower_case(answer);
  std::vector<std::string> ours = normalised_words(answer);
  const std::vector<std::string> in_order = ours;
  std::ranges::sort(ours);
  AnswerScores scores;
  std::size_t contained = 0;
  for (const std::string& reference : references) {
    std::vector<std::string> theirs = normalised_words(reference);
    if (theirs == in_order) scores.exact = 1;
    std::ranges::sort(theirs);
    scores.f1 = std::max(scores.f1, f1_of(ours, theirs));
    contained += lower.find(lower_case(reference)) != std::string::npos ? 1 : 0;
  }
  scores.contains = static_cast<double>(contained) / static_cast<double>(references.size());
  scores.contains_any = contained > 0 ? 1 : 0;
  return scores;
}

}  // namespace kvroof
