#include "apps/eval/eval_answers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvroof {
namespace {

using Prompt = AnswerExamples::Prompt;
using Question = AnswerExamples::Question;

// Where a line has several questions and nobody says how they are asked.
constexpr const char* kContextTemplate = "{context}";
constexpr const char* kTurnTemplate = "\n{input}";

// What a line is asked, as texts.
struct Asked {
  std::string prompt;
  std::vector<std::string> questions;  // behind it; empty ones: it asks them itself
  std::vector<std::vector<std::string>> references;
};

Asked asked_once(const EvalRequest& request, const Line& line) {
  const auto text_of = [&](const std::string& key) { return line.text(key.c_str(), true); };
  if (!request.prompt_template && !line.has("prompt") && line.has("input")) {
    line.refuse("key \"prompt\" is missing",
                "--template makes a prompt of other keys: --template '{input}', or --template '{context} {input}'");
  }
  if (request.questions_apart) line.refuse("--questions apart is of lines with several (\"multi_turns\")");
  if (request.question_in_prompt && !request.question_template) {
    line.refuse("--question-in-prompt is of a question that --question or \"multi_turns\" tells from the prompt");
  }
  Asked asked;
  asked.prompt = request.prompt_template ? filled(*request.prompt_template, text_of) : line.text("prompt", false);
  asked.questions = {request.question_template ? filled(*request.question_template, text_of) : std::string()};
  asked.references = {line.references()};
  return asked;
}

Asked asked_in_turns(const EvalRequest& request, const Line& line) {
  const auto text_of = [&](const std::string& key) { return line.text(key.c_str(), true); };
  Asked asked;
  asked.prompt = filled(request.prompt_template.value_or(kContextTemplate), text_of);
  for (const Line& turn : line.turns()) {
    const auto text_of_turn = [&](const std::string& key) {
      return turn.has(key.c_str()) || !line.has(key.c_str()) ? turn.text(key.c_str(), true) : text_of(key);
    };
    asked.questions.push_back(filled(request.question_template.value_or(kTurnTemplate), text_of_turn));
    asked.references.push_back(turn.references());
  }
  return asked;
}

class Encoder {
 public:
  Encoder(const EvalRequest& request, const ModelConfig& config, const Tokenizer& tokenizer, const Line& line)
      : request_(request), config_(config), tokenizer_(tokenizer), line_(line) {}

  // Questions [first, end) one after the other. What the policy evicts between is encoded by itself.
  [[nodiscard]] Prompt prompt(const Asked& asked, std::size_t first, std::size_t end) const {
    const bool in_prompt = request_.question_in_prompt || asked.questions[first].empty();
    Prompt prompt{line_.number(), {}, {}};
    prompt.ids = tokenizer_.encode(in_prompt ? asked.prompt + asked.questions[first] : asked.prompt, true);
    if (prompt.ids.empty()) line_.refuse("the prompt has no token, and this tokenizer puts none before a text");
    for (std::size_t turn = first; turn < end; ++turn) {
      const bool behind = turn > first || !in_prompt;
      prompt.questions.push_back({{}, turn, asked.references[turn]});
      if (!behind) continue;
      TokenIds& ids = prompt.questions.back().ids;
      ids = tokenizer_.encode(asked.questions[turn], false);
      if (ids.empty()) line_.refuse(fmt::format("question {} has no token", turn + 1));
    }
    check_room(prompt);
    return prompt;
  }

 private:
  // An answer that nothing follows may end with the context.
  void check_room(const Prompt& prompt) const {
    line_.check_context(config_, prompt.ids.size());
    std::size_t tokens = prompt.ids.size() + (prompt.questions.size() - 1) * request_.max_tokens;
    for (const Question& question : prompt.questions) tokens += question.ids.size();
    if (tokens <= config_.shape.max_positions) return;
    line_.refuse(fmt::format("prompt, questions and the answers between take up to {} tokens, but the context of the "
                             "model is {}", tokens, config_.shape.max_positions),
                 "fewer --max-tokens leave more room");
  }

  const EvalRequest& request_;
  const ModelConfig& config_;
  const Tokenizer& tokenizer_;
  const Line& line_;
};

}  // namespace

std::vector<const Question*> AnswerExamples::questions() const {
  std::vector<const Question*> all;
  for (const Prompt& prompt : prompts) {
    for (const Question& question : prompt.questions) all.push_back(&question);
  }
  return all;
}

std::size_t AnswerExamples::turns() const {
  std::size_t turns = 0;
  for (const Question* question : questions()) turns = std::max(turns, question->turn + 1);
  return turns;
}

bool AnswerExamples::asks_behind() const {
  return std::ranges::any_of(prompts, [](const Prompt& prompt) { return !prompt.questions.front().ids.empty(); });
}

std::vector<Prompt> answer_prompts(const EvalRequest& request, const ModelConfig& config, const Tokenizer& tokenizer,
                                   const Line& line) {
  const Asked asked = line.has(kTurnsKey) ? asked_in_turns(request, line) : asked_once(request, line);
  const Encoder encoder(request, config, tokenizer, line);
  if (!request.questions_apart) return {encoder.prompt(asked, 0, asked.questions.size())};
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < asked.questions.size(); ++i) prompts.push_back(encoder.prompt(asked, i, i + 1));
  return prompts;
}

}  // namespace kvroof
