#include "apps/eval/eval_examples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "apps/cli/text_input.hpp"
#include "kernels/engine/session.hpp"

namespace kvroof {
namespace {

constexpr std::uint32_t kDefaultContext = 1024;
// Where the references of an answer stand, as LongBench ("answers") and RULER ("outputs") name them: the first one that
// a line has.
constexpr std::array<const char*, 4> kReferenceKeys = {"reference", "answers", "outputs", "answer"};

// Bytes of the text before each token and, last, of the whole: a character that several tokens make up counts where
// its last byte is.
std::vector<std::uint64_t> bytes_before(const Tokenizer& tokenizer, const TokenIds& ids) {
  StreamingDecoder decoder(tokenizer, false);
  std::vector<std::uint64_t> before = {0};
  for (const std::int64_t id : ids) before.push_back(before.back() + decoder.push(id).size());
  before.back() += decoder.finish().size();
  return before;
}

void check_context(const EvalRequest& request, const ModelConfig& config, std::size_t line, std::size_t tokens) {
  if (tokens <= config.shape.max_positions) return;
  throw usage_error(fmt::format("{}: line {} has {} tokens, but the context of the model is {}", request.file.string(),
                                line, tokens, config.shape.max_positions));
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

// One JSON object of the file, with messages that name its line.
class Line {
 public:
  Line(const EvalRequest& request, std::size_t number, const std::string& text)
      : where_(fmt::format("{}: line {}", request.file.string(), number)), number_(number) {
    json_ = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json_.is_object()) throw usage_error(where_ + ": not a JSON object");
  }
  [[nodiscard]] std::size_t number() const { return number_; }
  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }
  [[nodiscard]] std::string text(const char* key, bool may_be_empty) const {
    const nlohmann::json& value = at(key);
    if (!value.is_string()) refuse(key, "a text");
    if (!may_be_empty && value.get_ref<const std::string&>().empty()) refuse(key, "a text that is not empty");
    return value.get<std::string>();
  }
  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    const nlohmann::json& value = at(key);
    if (!value.is_array() || value.size() < 2) refuse(key, "a list of at least two texts");
    for (const nlohmann::json& item : value) {
      if (!item.is_string() || item.get_ref<const std::string&>().empty()) refuse(key, "texts that are not empty");
    }
    return value.get<std::vector<std::string>>();
  }
  // A text, or a list of at least one; none of them empty.
  [[nodiscard]] std::vector<std::string> references() const {
    const auto* const key = std::ranges::find_if(kReferenceKeys, [this](const char* name) { return has(name); });
    const char* const name = key == kReferenceKeys.end() ? kReferenceKeys.front() : *key;
    if (!at(name).is_array()) return {text(name, false)};
    for (const nlohmann::json& item : at(name)) {
      if (!item.is_string() || item.get_ref<const std::string&>().empty()) refuse(name, "texts that are not empty");
    }
    if (at(name).empty()) refuse(name, "a text or a list of at least one");
    return at(name).get<std::vector<std::string>>();
  }
  [[nodiscard]] std::size_t index(const char* key, std::size_t count) const {
    const nlohmann::json& value = at(key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= count) {
      refuse(key, fmt::format("a number from 0 to {}, the index of a choice", count - 1));
    }
    return value.get<std::size_t>();
  }

 private:
  [[nodiscard]] const nlohmann::json& at(const char* key) const {
    if (!json_.contains(key)) throw usage_error(fmt::format("{}: key \"{}\" is missing", where_, key));
    return json_[key];
  }
  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    const std::string found = json_[key].dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    throw usage_error(fmt::format("{}: \"{}\" must be {}, found {}", where_, key, expected, found.substr(0, 60)));
  }

  std::string where_;
  std::size_t number_;
  nlohmann::json json_;
};

// Lines that hold nothing but blanks are skipped.
std::vector<Line> read_lines(const EvalRequest& request) {
  const std::string text = text_input("jsonl", request.file.string(), kMostEvalBytes);
  std::vector<Line> lines;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.emplace_back(request, number, line);
    begin = end + 1;
  }
  if (lines.empty()) throw usage_error(fmt::format("--jsonl {}: the file is empty", request.file.string()));
  return lines;
}

EvalTask task_of(const EvalRequest& request, const Line& line) {
  if (request.task) return *request.task;
  if (line.has("reference")) return EvalTask::kRouge;
  if (line.has("choices")) return EvalTask::kChoice;
  if (std::ranges::any_of(kReferenceKeys, [&](const char* key) { return line.has(key); })) return EvalTask::kRouge;
  throw usage_error(
      fmt::format("{}: line {} has neither \"reference\" nor \"choices\"", request.file.string(), line.number()))
      .note(R"(scores of answers need {"prompt", "reference" or "answers"} on each line, multiple choice )"
            R"({"context", "choices", "answer"})");
}

AnswerExamples::Prompt answer_prompt(const EvalRequest& request, const ModelConfig& config, const Tokenizer& tokenizer,
                                     const Line& line) {
  const auto text_of = [&](const std::string& key) { return line.text(key.c_str(), true); };
  if (!request.prompt_template && !line.has("prompt") && line.has("input")) {
    throw usage_error(fmt::format("{}: line {}: key \"prompt\" is missing", request.file.string(), line.number()))
        .note("--template makes a prompt of other keys: --template '{input}', or --template '{context} {input}'");
  }
  const std::string text =
      request.prompt_template ? filled(*request.prompt_template, text_of) : line.text("prompt", false);
  AnswerExamples::Prompt prompt{line.number(), tokenizer.encode(text, true), line.references()};
  check_context(request, config, line.number(), prompt.ids.size());
  return prompt;
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
    check_context(request, config, line.number(), choice.ids.size());
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
      answers.prompts.push_back(answer_prompt(request, config, tokenizer, line));
    } else {
      questions.push_back(choice_example(request, config, tokenizer, line));
    }
  }
  if (task == EvalTask::kRouge) return answers;
  return questions;
}

}  // namespace kvroof
