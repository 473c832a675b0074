// A needle in a haystack: a sentence with a number of five digits, somewhere in a long text, and the question for it.
// The test of Kamradt (2023) over depth and length; the number is a pass key, as of Mohtashami and Jaggi (2023).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/eval/eval_text.hpp"
#include "sim/model/config_json.hpp"

namespace kvroof {

struct EvalPoint;

struct NeedleExamples {
  struct Case {
    TokenIds ids;                 // special tokens, text, needle, text, question, key
    std::uint32_t prompt = 0;       // of ids: what is prefilled before the policy evicts
    std::uint32_t key_begin = 0;    // index in ids of the key's first token
    std::size_t context = 0;        // index in contexts
    std::size_t depth = 0;          // index in depths
    std::uint64_t text_begin = 0;   // the haystack's first token in the text
    std::uint32_t before = 0;       // tokens of the text before the needle
    std::string key;
  };
  std::vector<std::uint32_t> contexts;  // tokens of text and needle, with special tokens
  std::vector<double> depths;           // 0: the needle comes first; 1: right before the question
  std::uint32_t keys = 0;               // of each context and depth; each lies in another stretch of the text
  bool question_in_prompt = false;
  std::vector<Case> cases;              // [contexts][depths][keys]
};

// Throws Error (usage) where the text is too short, the context of the model too small, or a text has no token.
NeedleExamples needle_examples(const EvalRequest& request, std::uint64_t seed, const ModelConfig& config,
                               const Tokenizer& tokenizer);

// What a model under a policy made of one key.
struct NeedleScore {
  bool found = false;         // each of its tokens is what a greedy answer would say
  double log_likelihood = 0;  // natural, of the whole key
  std::uint32_t tokens = 0;
};

// 1 of each key that is found, else 0.
std::vector<double> found_keys(const EvalPoint& point);
// Over the tokens of all keys.
double nats_per_key_token(const EvalPoint& point);
// [depths], over all contexts.
std::vector<double> found_by_depth(const NeedleExamples& examples, const EvalPoint& point);
// [contexts][depths].
std::vector<double> found_by_context_and_depth(const NeedleExamples& examples, const EvalPoint& point);

// A map of depths and contexts for each point.
std::string needle_svg(const NeedleExamples& examples, std::span<const EvalPoint> points);

}  // namespace kvroof
