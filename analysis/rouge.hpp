// ROUGE-1, ROUGE-2 and ROUGE-L of a text against a reference, as the Python package rouge_score computes them.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kvroof {

struct RougeScore {
  double precision = 0;  // of the text's n-grams, the share that the reference has
  double recall = 0;     // of the reference's n-grams, the share that the text has
  double f1 = 0;         // their harmonic mean, 0 when both are
};

struct Rouge {
  RougeScore rouge1;
  RougeScore rouge2;
  RougeScore rougeL;  // longest common subsequence of the whole texts (Lin 2004, section 3.1)
};

// Words are runs of ASCII letters and digits of the lower-cased text; everything else separates them. No stemming. An
// n-gram counts as often as both texts have it. A text or reference without n-grams scores 0. O(words × words) time.
Rouge rouge(std::string_view text, std::string_view reference);

// Against several references, at least one: each of the three is that of the reference with the largest F1, the first
// one of equals, as rouge_score's score_multi.
Rouge best_rouge(std::string_view text, std::span<const std::string> references);

}  // namespace kvroof
