#include "apps/eval/eval_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "apps/cli/output.hpp"
#include "apps/cli/shared_options.hpp"
#include "apps/cli/values.hpp"
#include "apps/eval/eval_text.hpp"
#include "kernels/engine/kv_bookkeeping.hpp"
#include "sim/core/suggest.hpp"

namespace po = boost::program_options;

namespace kvroof {
namespace {

constexpr const char* kNeedle = "The pass key is {key}. Keep it in mind: the pass key is {key}.";
constexpr const char* kQuestion = "The pass key is";

// Full attention is what everything is compared with: it comes first, whether it was asked for or not.
std::vector<PolicySpec> points_with_full(const Arguments& arguments) {
  std::vector<PolicySpec> points = parse_policies("full");
  for (PolicySpec& point : policy_points(arguments)) {
    check_runnable(point);
    if (!point.is_full()) points.push_back(std::move(point));
  }
  return points;
}

std::optional<EvalTask> task_option(const Arguments& arguments) {
  if (arguments.has("text") == arguments.has("jsonl")) {
    throw usage_error("give either --text F (perplexity or needles) or --jsonl F (ROUGE or multiple choice)");
  }
  if (!arguments.has("task")) {
    return arguments.has("text") ? std::optional(EvalTask::kPerplexity) : std::nullopt;
  }
  struct Named {
    std::string name;
    EvalTask task;
  };
  std::vector<Named> tasks = {{"rouge", EvalTask::kRouge}, {"choice", EvalTask::kChoice}};
  if (arguments.has("text")) tasks = {{"perplexity", EvalTask::kPerplexity}, {"needle", EvalTask::kNeedle}};
  const auto& name = arguments.get<std::string>("task");
  std::vector<std::string> known;
  for (const Named& named : tasks) {
    if (named.name == name) return named.task;
    known.push_back(named.name);
  }
  throw usage_error(fmt::format("--task {}: expected {} with --{}{}", name, join(known, " or "),
                                arguments.has("text") ? "text" : "jsonl", did_you_mean(name, known)));
}

NeedleRequest needle_option(const Arguments& arguments) {
  NeedleRequest request;
  request.needle = arguments.get<std::string>("needle");
  request.question = arguments.get<std::string>("question");
  if (request.needle.find("{key}") == std::string::npos) {
    throw usage_error(
        fmt::format("--needle '{}': expected a text with {{key}}, where the number goes", request.needle));
  }
  for (const std::string& depth : split_list("depth", arguments.get<std::string>("depth"))) {
    const double share = share_value("depth", depth, 0, 1);
    if (std::ranges::find(request.depths, share) == request.depths.end()) request.depths.push_back(share);
  }
  request.keys = count_value("keys", arguments.get<std::string>("keys"), 1, 1U << 16);
  return request;
}

bool apart_option(const Arguments& arguments) {
  const auto& text = arguments.get<std::string>("questions");
  if (text == "apart" || text == "follow") return text == "apart";
  throw usage_error(fmt::format("--questions {}: expected follow or apart", text));
}

std::optional<Budget> prompt_option(const Arguments& arguments) {
  if (!arguments.has("prompt")) return std::nullopt;
  const auto& text = arguments.get<std::string>("prompt");
  if (text.find_first_of(".%") == std::string::npos) {
    return Budget{Budget::Kind::kTokens, static_cast<double>(count_value("prompt", text, 1, kMostTokens)), text};
  }
  const Result<Budget> share = parse_budget(text);
  if (!share.ok() || share.value().kind != Budget::Kind::kFractionOfPrompt) {
    throw usage_error(fmt::format("--prompt {}: expected tokens such as 512, or a share such as 0.5 or 50%", text));
  }
  return share.value();
}

std::optional<std::string> template_option(const Arguments& arguments, const std::string& option) {
  if (!arguments.has(option)) return std::nullopt;
  const auto& pattern = arguments.get<std::string>(option);
  bool has_key = false;
  filled(pattern, [&](const std::string& key) { return has_key = true, key; });
  if (has_key) return pattern;
  throw usage_error(fmt::format("--{} '{}': expected a text with keys of the JSON lines in braces, such as "
                                "{{context}} and {{input}}",
                                option, pattern));
}

std::optional<std::uint32_t> count_option(const Arguments& arguments, const std::string& option, std::uint32_t least) {
  if (!arguments.has(option)) return std::nullopt;
  return count_value(option, arguments.get<std::string>(option), least, kMostTokens);
}

}  // namespace

void describe_eval(po::options_description_easy_init add) {
  const auto text = [](const char* fallback) { return po::value<std::string>()->default_value(fallback); };
  const auto any = [] { return po::value<std::string>(); };
  add("model,m", any(), "Hugging Face folder, or `demo`")(
      "text", any(),
      "a text file, or - for standard input: perplexity, or with --task needle whether a number hidden in it is found")(
      "jsonl", any(),
      "a file of JSON lines, or -: {\"prompt\", \"reference\" or a list \"answers\"} or "
      "{\"context\", \"choices\", \"answer\"}, or several questions of a context: {\"context\", \"multi_turns\": "
      "[{\"input\", \"answer\"}, …]}")(
      "task", any(),
      "of --text: perplexity (default) | needle; of --jsonl: rouge | choice (default: what the first line has)")(
      "policy", text("full"), "eviction policies, name[:key=value]…, between commas; full is always the base line")(
      "budget", any(), "for policies without budget=, a list: 0.5 or 50% of the prompt, 512 or 4k tokens, 0.5@current")(
      "context", any(),
      "perplexity: tokens of a window (default 1k, or the model's context if that is less); needle: tokens of the text "
      "with its needle, a list (default: 512,1k,2k, those that fit)")(
      "stride", any(),
      "perplexity: tokens from window to window (default: those after the prompt); no token counts twice")(
      "prompt", any(),
      "tokens, or a share, that are prefilled before the first eviction (default: 0.5 of a window, 1.0 of a context)")(
      "max-tokens,n", text("128"), "rouge: new tokens at most")(
      "metric", text("rouge"), "rouge: scores of answers, a list: rouge | f1 | exact | contains | contains-any")(
      "template", any(), "rouge: the prompt, with {key} for texts of a JSON line: '{context} Question: {input}'")(
      "delimiter", text(" "), "choice, needle: what stands before a choice or key")(
      "needle", text(kNeedle), "needle: what is hidden; {key} becomes a number of five digits")(
      "question", text(kQuestion),
      "needle: what the key follows, after the text; rouge: what is asked behind the prompt, once the policy has "
      "evicted, with {key} as --template")(
      "questions", text("follow"),
      "rouge: of several of a line, each behind the answer before, follow, or of the context alone, apart")(
      "depth", text("0,0.25,0.5,0.75,1"), "needle: shares of the text before it, a list")(
      "keys", text("4"), "needle: numbers hidden for each context and depth, each in another stretch of the text")(
      "question-in-prompt", po::bool_switch(),
      "needle, rouge: policies see the question, of several the first, before they evict")(
      "svg", any(), "needle: write maps of depth and context to this file")(
      "batch", text("8"), "sequences that are decoded at once; changes the speed only")(
      "details", any(), "write what each window, prompt or question gave to this file, as JSON lines")(
      "backend", po::value<std::string>(), kBackendHelp)("linear", any(), kLinearHelp)(
      "dtype", any(), "weights as f32, bf16 or f16 (default: as stored; reference: f32)")(
      "kv", any(), kKvHelp);
}

EvalRequest parse_eval(const Arguments& arguments) {
  format_of(arguments);
  EvalRequest request;
  request.backend = backend_option(arguments);
  request.task = task_option(arguments);
  request.file = arguments.get<std::string>(arguments.has("text") ? "text" : "jsonl");
  request.model = model_folder(arguments);
  request.points = points_with_full(arguments);
  request.weight_type = float_type_option(arguments, "dtype");
  set_kv_type(request.points, kv_type_option(arguments));
  if (request.backend.kind == BackendKind::kReference && !request.weight_type) request.weight_type = DType::kF32;
  request.prompt = prompt_option(arguments);
  if (arguments.has("context")) {
    request.contexts = count_list("context", arguments.get<std::string>("context"), 2, kMostTokens);
  }
  request.svg = svg_file(arguments);
  request.stride = count_option(arguments, "stride", 1);
  request.batch = count_value("batch", arguments.get<std::string>("batch"), 1, kMostSequences);
  request.max_tokens = count_value("max-tokens", arguments.get<std::string>("max-tokens"), 1, kMostTokens);
  request.metrics = answer_metrics(arguments.get<std::string>("metric"));
  request.prompt_template = template_option(arguments, "template");
  if (arguments.has("jsonl")) request.question_template = template_option(arguments, "question");
  request.question_in_prompt = arguments.get<bool>("question-in-prompt");
  request.questions_apart = apart_option(arguments);
  request.delimiter = arguments.get<std::string>("delimiter");
  if (arguments.has("details")) request.details = arguments.get<std::string>("details");
  if (request.task == EvalTask::kNeedle) request.needle = needle_option(arguments);
  if (request.task) check_task_options(arguments, *request.task);
  if (request.task == EvalTask::kPerplexity && request.contexts.size() > 1) {
    throw usage_error("--context takes one number for perplexity; a list belongs to --task needle");
  }
  return request;
}

void check_task_options(const Arguments& arguments, EvalTask task) {
  struct Owner {
    const char* option;
    const char* tasks;
    bool fits;
  };
  const bool perplexity = task == EvalTask::kPerplexity;
  const bool rouge = task == EvalTask::kRouge;
  const bool choice = task == EvalTask::kChoice;
  const bool needle = task == EvalTask::kNeedle;
  const std::array<Owner, 14> owners = {{{"context", "--text", perplexity || needle},
                                         {"stride", "perplexity", perplexity},
                                         {"prompt", "perplexity and --task choice", perplexity || choice},
                                         {"max-tokens", "--task rouge", rouge},
                                         {"metric", "--task rouge", rouge},
                                         {"template", "--task rouge", rouge},
                                         {"delimiter", "--task choice and needle", choice || needle},
                                         {"needle", "--task needle", needle},
                                         {"question", "--task needle and rouge", needle || rouge},
                                         {"questions", "--task rouge", rouge},
                                         {"depth", "--task needle", needle},
                                         {"keys", "--task needle", needle},
                                         {"question-in-prompt", "--task needle and rouge", needle || rouge},
                                         {"svg", "--task needle", needle}}};
  for (const Owner& owner : owners) {
    if (arguments.has(owner.option) && !owner.fits) {
      throw usage_error(fmt::format("--{} belongs to {}", owner.option, owner.tasks));
    }
  }
}

}  // namespace kvroof
