// A byte-level tokenizer of a few tokens, as JSON that a test can change.
#pragma once

#include <nlohmann/json.hpp>

#include "kernels/tokenizer/tokenizer.hpp"

namespace kvroof::test {

inline nlohmann::json byte_level() { return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}; }

// Tokens a b c d x (0 … 4), the space Ġ (5), ab (6), cd (7), abcd (8), Ġa (9) and <s> (10, special, added).
inline nlohmann::json small_tokenizer() {
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", {{{"id", 10}, {"content", "<s>"}, {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level()},
      {"post_processor", nullptr},
      {"decoder", byte_level()},
      {"model",
       {{"type", "BPE"},
        {"vocab",
         {{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}, {"x", 4}, {"Ġ", 5}, {"ab", 6}, {"cd", 7}, {"abcd", 8}, {"Ġa", 9}}},
        {"merges", {"a b", "c d", "ab cd", "Ġ a"}}}},
  };
}

inline Tokenizer make(const nlohmann::json& json) { return Tokenizer::from_json(json.dump()).or_throw("test"); }

}  // namespace kvroof::test
