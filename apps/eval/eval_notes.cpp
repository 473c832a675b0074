// What the numbers of an evaluation mean, in sentences, and what each example gave, as JSON lines.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/eval/eval_output.hpp"
#include "apps/eval/eval_summary.hpp"
#include "sim/core/counted.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {
namespace {

using Json = nlohmann::ordered_json;

const std::string kSpreadNote = "±: 1.96 standard errors of what stands before it";

struct Notes {
  std::span<const EvalPoint> points;
  std::vector<std::string>& notes;

  void operator()(const TextExamples& text) const {
    notes.push_back(fmt::format(
        "perplexity: {} of {} tokens, {} apart; the first {} of each are the prompt, and each later "
        "one is a decode step under the policy and counts{}",
        counted(text.windows.size(), "window"), text.context, text.stride, text.prompt,
        text.stride < text.context - text.prompt ? ", unless the window before has counted it" : ""));
    notes.emplace_back("difference: in nats a token against full on the same tokens; " + kSpreadNote);
  }
  void operator()(const AnswerExamples& examples) const {
    for (const AnswerMetric* metric : examples.metrics) notes.emplace_back(metric->note);
    const std::size_t turns = examples.turns();
    notes.push_back(fmt::format(
        "scores of greedy continuations, means over {}s; no beam search: beams are simulated as batch",
        turns > 1 ? "question" : "prompt"));
    if (examples.asks_behind()) {
      notes.emplace_back(
          "policies evict before they see a question that stands behind its prompt (--question-in-prompt: after the "
          "first)");
    } else if (turns > 1) {
      notes.emplace_back(
          "the first question behind a context is part of the prompt: policies see it before they evict");
    }
    if (turns > 1) {
      const bool apart = examples.prompts.size() == examples.questions().size();
      notes.push_back(fmt::format("up to {} questions of a context, {}", turns,
                                  apart ? "each asked of it alone"
                                        : "each behind the answer before, in what the policy has left of all that "
                                          "(--questions apart: each of the context alone)"));
    }
    notes.emplace_back("change: against full, line by line; " + kSpreadNote);
    const bool several =
        std::ranges::any_of(examples.questions(), [](const auto* question) { return question->references.size() > 1; });
    if (several) notes.emplace_back("of several references the best one counts, but for contains");
  }
  void operator()(const std::vector<ChoiceExample>& examples) const {
    notes.emplace_back("per byte: by log-likelihood divided by the bytes of the choice");
    notes.emplace_back("change: against full, question by question; " + kSpreadNote);
    std::size_t all = 0, unaffected = 0;
    for (const auto& example : examples) {
      for (const auto& choice : example.choices) {
        ++all;
        if (choice.prompt + 1 == choice.ids.size()) ++unaffected;
      }
    }
    if (unaffected == 0) return;
    notes.push_back(
        fmt::format("{} of {} choices are one token after the prompt, before anything is evicted: no policy can change "
                    "their likelihood; --prompt 0.5 lets policies evict within the context",
                    unaffected, all));
  }
  void operator()(const NeedleExamples& examples) const {
    notes.push_back(fmt::format(
        "found: keys whose every token is what a greedy answer would say; at 0.5: of those behind half of the text. {}",
        examples.question_in_prompt ? "The question is part of the prompt: policies see it before they evict"
                                    : "Policies evict before they see the question (--question-in-prompt: after)"));
    notes.emplace_back("change: against full, key by key; " + kSpreadNote);
    const std::vector<double> keys = found_keys(points.front());
    const double full = share_summary(keys, keys).share;
    if (full >= 0.5) return;
    notes.push_back(
        fmt::format("full attention itself finds {:.0f} % of the keys, so that policies have little to lose: try a "
                    "shorter --context, or a --needle and --question in the words of the model",
                    full * 100));
  }
};

struct Details {
  const EvalPoint& point;
  std::string& lines;

  void add(Json line) const {
    Json whole = {{"policy", point.spec.text()}};
    whole.update(line);
    lines += whole.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  void operator()(const TextExamples& text) const {
    for (std::size_t i = 0; i < text.windows.size(); ++i) {
      add({{"window", i},
           {"first_token", text.windows[i].first},
           {"bytes", text.windows[i].bytes},
           {"logprobs", point.logprobs[i]}});
    }
  }
  void operator()(const AnswerExamples& examples) const {
    const auto json = [](const RougeScore& s) {
      return Json{{"precision", s.precision}, {"recall", s.recall}, {"f1", s.f1}};
    };
    std::size_t next = 0;
    for (const AnswerExamples::Prompt& prompt : examples.prompts) {
      for (const AnswerExamples::Question& question : prompt.questions) {
        const EvalPoint::Continuation& c = point.continuations[next++];
        const auto& [rouge, match] = c.score;
        add({{"line", prompt.line},
             {"turn", question.turn + 1},
             {"text", c.text},
             {"ids", c.ids},
             {"rouge1", json(rouge.rouge1)},
             {"rouge2", json(rouge.rouge2)},
             {"rougeL", json(rouge.rougeL)},
             {"f1", match.f1},
             {"exact", match.exact},
             {"contains", match.contains},
             {"contains_any", match.contains_any}});
      }
    }
  }
  void operator()(const std::vector<ChoiceExample>& examples) const {
    for (std::size_t i = 0; i < examples.size(); ++i) {
      const std::vector<ChoiceScore>& choices = point.questions[i].choices;
      std::vector<double> likelihoods;
      for (const ChoiceScore& choice : choices) likelihoods.push_back(choice.log_likelihood);
      add({{"line", examples[i].line},
           {"answer", examples[i].answer},
           {"likeliest", likeliest(choices)},
           {"likeliest_for_length", likeliest_for_length(choices)},
           {"log_likelihoods", likelihoods}});
    }
  }
  void operator()(const NeedleExamples& examples) const {
    for (std::size_t i = 0; i < examples.cases.size(); ++i) {
      const NeedleExamples::Case& hidden = examples.cases[i];
      const NeedleScore& score = point.needles[i];
      add({{"context", examples.contexts[hidden.context]},
           {"depth", examples.depths[hidden.depth]},
           {"text_begin", hidden.text_begin},
           {"before", hidden.before},
           {"key", hidden.key},
           {"found", score.found},
           {"log_likelihood", score.log_likelihood},
           {"tokens", score.tokens}});
    }
  }
};

// The lengths of all prompts, after which policies evict.
struct PromptLengths {
  std::vector<std::uint32_t>& lengths;

  void operator()(const TextExamples& text) const { lengths.push_back(text.prompt); }
  void operator()(const AnswerExamples& examples) const {
    for (const auto& prompt : examples.prompts) lengths.push_back(static_cast<std::uint32_t>(prompt.ids.size()));
  }
  void operator()(const std::vector<ChoiceExample>& examples) const {
    for (const auto& example : examples) {
      for (const auto& choice : example.choices) lengths.push_back(choice.prompt);
    }
  }
  void operator()(const NeedleExamples& examples) const {
    for (const auto& hidden : examples.cases) lengths.push_back(hidden.prompt);
  }
};

// Of each point the first prompt's that has one.
void add_policy_advice(const Examples& examples, std::span<const EvalPoint> points, std::vector<std::string>& notes) {
  std::vector<std::uint32_t> lengths;
  std::visit(PromptLengths{lengths}, examples);
  for (const EvalPoint& point : points) {
    for (const std::uint32_t prompt : lengths) {
      const std::string advice = policy_advice(point.spec, prompt);
      if (advice.empty()) continue;
      notes.push_back("note: " + advice);
      break;
    }
  }
}

}  // namespace

std::vector<std::string> eval_notes(const EvalRun& run, std::span<const EvalPoint> points) {
  std::vector<std::string> notes;
  std::visit(Notes{points, notes}, run.examples);
  std::vector<std::string> budgets;
  for (const EvalPoint& point : points) {
    const Budget& budget = point.spec.budget;
    if (budget.kind == Budget::Kind::kUnlimited) continue;
    std::string text = fmt::format("budget {} = {}", budget.text, budget.describe());
    if (std::find(budgets.begin(), budgets.end(), text) == budgets.end()) budgets.push_back(std::move(text));
  }
  notes.insert(notes.end(), budgets.begin(), budgets.end());
  if (points.front().kv_resident_bytes) notes.emplace_back("KV held: of one sequence, mean over decode steps");
  add_policy_advice(run.examples, points, notes);
  return notes;
}

std::string eval_details(const Examples& examples, std::span<const EvalPoint> points) {
  std::string lines;
  for (const EvalPoint& point : points) std::visit(Details{point, lines}, examples);
  return lines;
}

}  // namespace kvroof
