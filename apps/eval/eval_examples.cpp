#include "apps/eval/eval_examples.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "apps/eval/eval_answers.hpp"
#include "apps/eval/eval_lines.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultContext = 1024;
// Bytes of the text before each token and, last, of the whole: a character that several tokens make up counts where
// its last byte is.
std::vector<std::uint64_t> bytes_before(const Tokenizer& tokenizer, const TokenIds& ids) {
  StreamingDecoder decoder(tokenizer, false);
  std::vector<std::uint64_t> before = {0};
  for (const std::int64_t id : ids) before.push_back(before.back() + decoder.push(id).size());
  before.back() += decoder.finish().size();
  return before;
}

// Sizes of a window with its special tokens.
void set_window(const EvalRequest& request, const ModelConfig& config, std::size_t text_tokens, std::size_t specials,
                TextExamples& examples) {
  const std::uint32_t most = config.shape.max_positions;
  const std::uint32_t asked = request.contexts.empty() ? std::min(kDefaultContext, most) : request.contexts.front();
  if (asked > most) throw usage_error(fmt::format("--context {}: the context of the model is {}", asked, most));
  const std::uint64_t whole = text_tokens + specials;
  const std::uint64_t window = std::min<std::uint64_t>(asked, whole);
  if (window < 2) throw usage_error(fmt::format("{}: one token is too short a text", request.file.string()));
  examples.context = static_cast<std::uint32_t>(window);
  const Budget half{Budget::Kind::kFractionOfPrompt, 0.5, "0.5"};
  examples.prompt = request.prompt.value_or(half).tokens(examples.context, examples.context);
  if (examples.prompt < specials) examples.prompt = static_cast<std::uint32_t>(specials);
  if (examples.prompt >= examples.context) {
    throw usage_error(fmt::format("--prompt {}: no token is left to predict in a window of {}{}", examples.prompt,
                                  examples.context, whole == window ? ", which is the whole text" : ""));
  }
  examples.stride = request.stride.value_or(examples.context - examples.prompt);
}

TextExamples text_examples(const EvalRequest& request, const ModelConfig& config, const Tokenizer& tokenizer) {
  const std::string text = eval_text(request);
  const TokenIds ids = tokenizer.encode(text, false);
  const TokenIds specials = leading_specials(tokenizer);
  const auto before = bytes_before(tokenizer, ids);
  TextExamples examples;
  set_window(request, config, ids.size(), specials.size(), examples);
  const auto special = static_cast<std::uint32_t>(specials.size());
  for (const TextWindow& w :
       text_windows(ids.size(), examples.context - special, examples.prompt - special, examples.stride)) {
    const auto skipped = static_cast<std::uint32_t>(w.counted - w.prompt_end);
    TextExamples::Window window{specials, examples.prompt, skipped, w.counted, before[w.end] - before[w.counted]};
    window.ids.insert(window.ids.end(), ids.begin() + static_cast<std::ptrdiff_t>(w.begin),
                      ids.begin() + static_cast<std::ptrdiff_t>(w.end));
    examples.windows.push_back(std::move(window));
  }
  return examples;
}

EvalTask task_of(const EvalRequest& request, const Line& line) {
  if (request.task) return *request.task;
  if (line.has("reference")) return EvalTask::kRouge;
  if (line.has("choices")) return EvalTask::kChoice;
  if (line.has_references() || line.has(kTurnsKey)) return EvalTask::kRouge;
  throw usage_error(
      fmt::format("{}: line {} has neither \"reference\" nor \"choices\"", request.file.string(), line.number()))
      .note(R"(scores of answers need {"prompt", "reference" or "answers"} or {"context", "multi_turns"} on each )"
            R"(line, multiple choice {"context", "choices", "answer"})");
}

// Context and choice are encoded as a whole and split where the context alone ends, blanks at its end going to the
// choice, as lm-evaluation-harness does (LM._encode_pair): a tokenizer rarely ends a token with a blank.
ChoiceExample choice_example(const EvalRequest& request, const ModelConfig& config, const Tokenizer& tokenizer,
                             const Line& line) {
  const std::string context = line.text("context", true);
  const std::string trimmed = context.substr(0, context.find_last_not_of(" \t\r\n") + 1);
  const std::vector<std::string> choices = line.texts("choices");
  ChoiceExample example;
  example.line = line.number();
  example.answer = line.index("answer", choices.size());
  TokenIds before = leading_specials(tokenizer);
  const std::size_t specials = before.size();
  const TokenIds encoded = tokenizer.encode(trimmed, false);
  before.insert(before.end(), encoded.begin(), encoded.end());
  if (before.empty()) {
    throw usage_error(fmt::format("{}: line {}: \"context\" has no token, and this tokenizer puts none before a text",
                                  request.file.string(), line.number()));
  }
  const Budget all{Budget::Kind::kFractionOfPrompt, 1.0, "1.0"};
  const auto tokens = static_cast<std::uint32_t>(before.size());
  for (const std::string& text : choices) {
    ChoiceExample::Choice choice{before, 0, tokens, text.size()};
    choice.ids.resize(specials);
    const TokenIds whole = tokenizer.encode(context + request.delimiter + text, false);
    choice.ids.insert(choice.ids.end(), whole.begin(), whole.end());
    if (choice.ids.size() <= tokens) {
      throw usage_error(fmt::format("{}: line {}: choice \"{}\" adds no token to its context", request.file.string(),
                                    line.number(), text.substr(0, 60)));
    }
    choice.prompt = std::min(tokens, request.prompt.value_or(all).tokens(tokens, tokens));
    line.check_context(config, choice.ids.size());
    example.choices.push_back(std::move(choice));
  }
  return example;
}

}  // namespace

Examples read_examples(const Arguments& arguments, const EvalRequest& request, const ModelConfig& config,
                       const Tokenizer& tokenizer) {
  if (request.task == EvalTask::kPerplexity) return text_examples(request, config, tokenizer);
  if (request.task == EvalTask::kNeedle) return needle_examples(request, arguments.seed, config, tokenizer);
  const std::vector<Line> lines = read_lines(request);
  const EvalTask task = task_of(request, lines.front());
  check_task_options(arguments, task);
  AnswerExamples answers{{}, request.metrics};
  std::vector<ChoiceExample> questions;
  for (const Line& line : lines) {
    if (task == EvalTask::kRouge) {
      for (AnswerExamples::Prompt& prompt : answer_prompts(request, config, tokenizer, line)) {
        answers.prompts.push_back(std::move(prompt));
      }
    } else {
      questions.push_back(choice_example(request, config, tokenizer, line));
    }
  }
  if (task == EvalTask::kRouge) return answers;
  return questions;
}

}  // namespace kvroof
