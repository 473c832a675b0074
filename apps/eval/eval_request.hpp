// What `kvroof eval` was asked for, read and checked before any work.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/eval/eval_metrics.hpp"
#include "apps/generate/backend_choice.hpp"
#include "sim/core/dtype.hpp"
#include "sim/policy/spec.hpp"

namespace kvroof {

enum class EvalTask : std::uint8_t { kPerplexity, kRouge, kChoice, kNeedle };

struct NeedleRequest {
  std::string needle, question;  // the needle says {key}
  std::vector<double> depths;    // shares of the text before the needle
  std::uint32_t keys = 0;        // for each context and depth
};

struct EvalRequest {
  std::filesystem::path model;
  std::vector<PolicySpec> points;  // full first, then policies × budgets
  BackendChoice backend;
  std::optional<DType> weight_type;  // none: the checkpoint's own
  std::filesystem::path file;        // of --text or --jsonl
  std::optional<EvalTask> task;      // none: the keys of the first JSON line say it
  std::optional<Budget> prompt;      // a count of tokens, or a share of the window or context
  std::vector<std::uint32_t> contexts;  // none: the task's own
  std::optional<std::uint32_t> stride;
  std::uint32_t batch = 0;
  std::uint32_t max_tokens = 0;
  std::vector<const AnswerMetric*> metrics;    // of answers
  // Of answers, texts with {key} for those of a JSON line: the prompt, and what follows it once the policy has evicted.
  std::optional<std::string> prompt_template, question_template;
  bool questions_apart = false;     // several of a line: each behind the prompt alone
  bool question_in_prompt = false;  // policies see it, or the first of several, before they evict
  std::string delimiter;
  std::optional<std::filesystem::path> details;
  std::optional<NeedleRequest> needle;  // of that task
  std::string svg;                      // empty: no picture
};

void describe_eval(boost::program_options::options_description_easy_init add);

// Throws Error (usage) in one sentence.
EvalRequest parse_eval(const Arguments& arguments);

// Refuses options that say nothing about this task: a usage error that names the option and its task.
void check_task_options(const Arguments& arguments, EvalTask task);

}  // namespace kvroof
