// Runs the tasks of `kvroof eval`: the engine under one policy, closed loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/multiple_choice.hpp"
#include "apps/eval/eval_examples.hpp"
#include "apps/eval/eval_metrics.hpp"
#include "kernels/engine/backend.hpp"

namespace kvroof {

// What one policy and budget gave. Of the four lists the one of the task is filled.
struct EvalPoint {
  struct Question {
    std::vector<ChoiceScore> choices;
  };
  struct Continuation {
    std::string text;
    TokenIds ids;
    AnswerScore score;
  };
  PolicySpec spec;
  std::optional<double> kv_resident_bytes;   // of one sequence, mean over decode steps; nothing when there was none
  std::vector<std::vector<float>> logprobs;  // perplexity: of each window's counted tokens
  std::vector<Continuation> continuations;   // rouge: of each question
  std::vector<Question> questions;           // choice
  std::vector<NeedleScore> needles;          // needle: of each case
};

// What is done of a point: called with the number of tokens since the last call.
using OnTokens = std::function<void(std::size_t tokens)>;

struct EvalRun {
  const ModelConfig& config;
  const Tokenizer& tokenizer;
  const Examples& examples;
  std::uint32_t batch = 1;
  std::uint32_t max_tokens = 0;
};

// `backend` holds no sequence and was made for `spec`. Results do not depend on the batch.
EvalPoint evaluate(const EvalRun& run, Backend& backend, const PolicySpec& spec, const OnTokens& on_tokens);

// Tokens that evaluate() reports at most, for the progress line.
std::uint64_t expected_tokens(const EvalRun& run);

}  // namespace kvroof
