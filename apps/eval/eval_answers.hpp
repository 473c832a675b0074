// Prompts and questions of `kvroof eval --jsonl` whose answers are scored.
#pragma once

#include <vector>

#include "apps/eval/eval_examples.hpp"
#include "apps/eval/eval_lines.hpp"

namespace kvroof {

// Of one line: one prompt, or where several questions are asked apart one for each. Throws Error (usage).
std::vector<AnswerExamples::Prompt> answer_prompts(const EvalRequest& request, const ModelConfig& config,
                                                   const Tokenizer& tokenizer, const Line& line);

}  // namespace kvroof
