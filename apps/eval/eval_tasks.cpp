#include "apps/eval/eval_tasks.hpp"

#include <algorithm>
#include <numeric>

#include "kernels/engine/metered_backend.hpp"
#include "kernels/engine/questions.hpp"
#include "kernels/engine/teacher_forcing.hpp"

namespace kvroof {
namespace {

// Forces all sequences, a batch at a time; sequence i of the back end is sequences[i], whatever the batch.
std::vector<ForcedTokens> force_all(const EvalRun& run, Backend& backend, const OnTokens& on_tokens,
                                    std::span<const KnownSequence> sequences) {
  std::vector<ForcedTokens> forced;
  for (std::size_t i = 0; i < sequences.size(); i += run.batch) {
    const auto batch = sequences.subspan(i, std::min<std::size_t>(run.batch, sequences.size() - i));
    auto part = force_tokens(backend, run.config.shape.vocab, batch, static_cast<std::uint32_t>(i), on_tokens);
    std::move(part.begin(), part.end(), std::back_inserter(forced));
  }
  return forced;
}

struct Evaluation {
  const EvalRun& run;
  MeteredBackend& backend;
  const OnTokens& on_tokens;
  EvalPoint& point;

  void operator()(const TextExamples& text) const {
    std::vector<KnownSequence> sequences;
    for (const auto& w : text.windows) sequences.push_back({w.ids, w.prompt, text.context - text.prompt});
    for (ForcedTokens& window : force_all(run, backend, on_tokens, sequences)) {
      const auto skipped = static_cast<std::ptrdiff_t>(text.windows[point.logprobs.size()].skipped);
      window.logprobs.erase(window.logprobs.begin(), window.logprobs.begin() + skipped);
      point.logprobs.push_back(std::move(window.logprobs));
    }
  }

  void operator()(const AnswerExamples& examples) const {
    for (std::size_t first = 0; first < examples.prompts.size(); first += run.batch) {
      const auto asked = std::span(examples.prompts).subspan(first);
      std::vector<AskedPrompt> batch;
      for (std::size_t i = 0; i < std::min<std::size_t>(run.batch, asked.size()); ++i) {
        batch.push_back({asked[i].ids, {}});
        for (const AnswerExamples::Question& question : asked[i].questions) batch[i].questions.push_back(question.ids);
      }
      auto answers = answer_questions(backend, run.config, batch, run.max_tokens, static_cast<std::uint32_t>(first),
                                      [this] { on_tokens(1); });
      for (std::size_t i = 0; i < batch.size(); ++i) {
        for (std::size_t turn = 0; turn < answers[i].size(); ++turn) {
          add_answer(std::move(answers[i][turn]), asked[i].questions[turn].references);
        }
      }
    }
  }

  void add_answer(TokenIds ids, std::span<const std::string> references) const {
    std::string text = run.tokenizer.decode(ids, true);
    const AnswerScore score = score_answer(text, references);
    point.continuations.push_back({std::move(text), std::move(ids), score});
  }

  void operator()(const std::vector<ChoiceExample>& examples) const {
    std::vector<KnownSequence> sequences;
    for (const ChoiceExample& example : examples) {
      for (const auto& choice : example.choices) {
        sequences.push_back({choice.ids, choice.prompt, static_cast<std::uint32_t>(choice.ids.size()) - choice.prompt});
      }
    }
    const std::vector<ForcedTokens> forced = force_all(run, backend, on_tokens, sequences);
    std::size_t next = 0;
    for (const ChoiceExample& example : examples) {
      EvalPoint::Question question;
      for (const auto& choice : example.choices) {
        const std::vector<float>& of_choice = forced[next++].logprobs;
        const auto counted = of_choice.begin() + (choice.begin - choice.prompt);
        question.choices.push_back({std::accumulate(counted, of_choice.end(), 0.0), choice.bytes});
      }
      point.questions.push_back(std::move(question));
    }
  }

  void operator()(const NeedleExamples& examples) const {
    std::vector<KnownSequence> sequences;
    for (const auto& hidden : examples.cases) {
      sequences.push_back({hidden.ids, hidden.prompt, static_cast<std::uint32_t>(hidden.ids.size()) - hidden.prompt});
    }
    const std::vector<ForcedTokens> forced = force_all(run, backend, on_tokens, sequences);
    for (std::size_t i = 0; i < forced.size(); ++i) {
      const std::ptrdiff_t key = examples.cases[i].key_begin - examples.cases[i].prompt;
      const auto& [logprobs, greedy] = forced[i];
      point.needles.push_back({std::find(greedy.begin() + key, greedy.end(), false) == greedy.end(),
                               std::accumulate(logprobs.begin() + key, logprobs.end(), 0.0),
                               static_cast<std::uint32_t>(logprobs.end() - logprobs.begin() - key)});
    }
  }
};

}  // namespace

EvalPoint evaluate(const EvalRun& run, Backend& backend, const PolicySpec& spec, const OnTokens& on_tokens) {
  MeteredBackend metered(backend);
  EvalPoint point;
  point.spec = spec;
  std::visit(Evaluation{run, metered, on_tokens, point}, run.examples);
  point.kv_resident_bytes = metered.resident_bytes();
  return point;
}

std::uint64_t expected_tokens(const EvalRun& run) {
  struct Count {
    std::uint64_t max_tokens;
    std::uint64_t operator()(const TextExamples& text) const {
      std::uint64_t tokens = 0;
      for (const auto& window : text.windows) tokens += window.ids.size() - window.prompt;
      return tokens;
    }
    std::uint64_t operator()(const AnswerExamples& examples) const { return examples.questions().size() * max_tokens; }
    std::uint64_t operator()(const std::vector<ChoiceExample>& examples) const {
      std::uint64_t tokens = 0;
      for (const auto& example : examples) {
        for (const auto& choice : example.choices) tokens += choice.ids.size() - choice.prompt;
      }
      return tokens;
    }
    std::uint64_t operator()(const NeedleExamples& examples) const {
      std::uint64_t tokens = 0;
      for (const auto& hidden : examples.cases) tokens += hidden.ids.size() - hidden.prompt;
      return tokens;
    }
  };
  return std::visit(Count{run.max_tokens}, run.examples);
}

}  // namespace kvroof
