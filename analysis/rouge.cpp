#include "analysis/rouge.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

using Words = std::vector<std::uint32_t>;

// Numbers words, so that comparing two is comparing integers.
class Vocabulary {
 public:
  Words words_of(std::string_view text) {
    Words words;
    std::string word;
    const auto end_word = [&] {
      if (!word.empty()) words.push_back(ids_.try_emplace(word, static_cast<std::uint32_t>(ids_.size())).first->second);
      word.clear();
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
        word += c;
      } else if (c >= 'A' && c <= 'Z') {
        word += static_cast<char>(c - 'A' + 'a');
      } else if (text.substr(i, 3) == "\u212a") {  // the Kelvin sign: one of two characters whose lower case is ASCII
        word += 'k';
        i += 2;
      } else {
        if (text.substr(i, 2) == "\u0130") word += 'i';  // capital I with dot above becomes i and a combining dot
        end_word();
      }
    }
    end_word();
    return words;
  }

 private:
  std::map<std::string, std::uint32_t> ids_;
};

// Of counts, as precision and recall are.
RougeScore score_of(std::size_t common, std::size_t in_text, std::size_t in_reference) {
  if (common == 0) return {};
  RougeScore score;
  score.precision = static_cast<double>(common) / static_cast<double>(in_text);
  score.recall = static_cast<double>(common) / static_cast<double>(in_reference);
  score.f1 = 2 * score.precision * score.recall / (score.precision + score.recall);
  return score;
}

// Runs of n words, sorted, one entry an occurrence.
std::vector<std::vector<std::uint32_t>> n_grams(const Words& words, std::size_t n) {
  std::vector<std::vector<std::uint32_t>> grams;
  for (std::size_t i = 0; i + n <= words.size(); ++i) {
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(i);
    grams.emplace_back(first, first + static_cast<std::ptrdiff_t>(n));
  }
  std::sort(grams.begin(), grams.end());
  return grams;
}

RougeScore n_gram_score(const Words& text, const Words& reference, std::size_t n) {
  const auto ours = n_grams(text, n);
  const auto theirs = n_grams(reference, n);
  std::vector<std::vector<std::uint32_t>> common;
  std::set_intersection(ours.begin(), ours.end(), theirs.begin(), theirs.end(), std::back_inserter(common));
  return score_of(common.size(), ours.size(), theirs.size());
}

std::size_t longest_common_subsequence(const Words& a, const Words& b) {
  std::vector<std::size_t> row(b.size() + 1, 0);  // of the prefix of a so far against every prefix of b
  for (const std::uint32_t word : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = std::exchange(row[j], word == b[j - 1] ? diagonal + 1 : std::max(row[j], row[j - 1]));
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

Rouge rouge(std::string_view text, std::string_view reference) {
  Vocabulary vocabulary;
  const Words ours = vocabulary.words_of(text);
  const Words theirs = vocabulary.words_of(reference);
  return {n_gram_score(ours, theirs, 1), n_gram_score(ours, theirs, 2),
          score_of(longest_common_subsequence(ours, theirs), ours.size(), theirs.size())};
}

Rouge best_rouge(std::string_view text, std::span<const std::string> references) {
  check(!references.empty(), "a text is compared with references");
  Rouge best = rouge(text, references.front());
  for (const std::string& reference : references.subspan(1)) {
    const Rouge other = rouge(text, reference);
    for (RougeScore Rouge::* part : {&Rouge::rouge1, &Rouge::rouge2, &Rouge::rougeL}) {
      if ((other.*part).f1 > (best.*part).f1) best.*part = other.*part;
    }
  }
  return best;
}

}  // namespace kvroof
