// What `kvroof eval` measures on: a text cut into windows, or the examples of a file of JSON lines, as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "analysis/perplexity.hpp"
#include "apps/eval/eval_needle.hpp"
#include "apps/eval/eval_request.hpp"
#include "kernels/tokenizer/tokenizer.hpp"
#include "sim/model/config_json.hpp"

namespace kvroof {

struct TextExamples {
  struct Window {
    TokenIds ids;               // begins with the special tokens that the tokenizer puts before a text
    std::uint32_t prompt = 0;   // of ids
    std::uint32_t skipped = 0;  // tokens behind the prompt that an earlier window counted
    std::uint64_t first = 0;    // the first counted token's index in the text
    std::uint64_t bytes = 0;    // of the text of the counted tokens
  };
  std::vector<Window> windows;
  std::uint32_t context = 0;  // of a whole window, with special tokens
  std::uint32_t prompt = 0;
  std::uint32_t stride = 0;
};

struct AnswerExamples {
  struct Question {
    TokenIds ids;                         // fed behind the prompt, or the answer before; none: the prompt asks it
    std::size_t turn = 0;                 // of its line, from 0
    std::vector<std::string> references;  // at least one
  };
  struct Prompt {
    std::size_t line = 0;  // in the file, from 1
    TokenIds ids;
    std::vector<Question> questions;  // at least one
  };
  std::vector<Prompt> prompts;
  std::vector<const AnswerMetric*> metrics;

  // Of all prompts, one after the other.
  [[nodiscard]] std::vector<const Question*> questions() const;
  [[nodiscard]] std::size_t turns() const;  // the most that a line has
  // Whether any prompt is evicted from before its question is known.
  [[nodiscard]] bool asks_behind() const;
};

struct ChoiceExample {
  struct Choice {
    TokenIds ids;              // of context and choice
    std::uint32_t prompt = 0;  // tokens that are prefilled
    std::uint32_t begin = 0;   // the choice's first token
    std::uint64_t bytes = 0;   // of the choice's text alone
  };
  std::size_t line = 0;
  std::vector<Choice> choices;
  std::size_t answer = 0;
};

using Examples = std::variant<TextExamples, AnswerExamples, std::vector<ChoiceExample>, NeedleExamples>;

// Reads the file of the request and checks every line of it before any work; also that the options fit the task.
// Throws Error (usage) that names file, line, key and what is expected.
Examples read_examples(const Arguments& arguments, const EvalRequest& request, const ModelConfig& config,
                       const Tokenizer& tokenizer);

}  // namespace kvroof
