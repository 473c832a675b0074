// kvroof eval: what a policy costs in quality, closed loop: perplexity, needles, scores of answers and multiple choice.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <set>
#include <string>

#include "apps/cli/messages.hpp"
#include "apps/cli/output.hpp"
#include "apps/cli/progress.hpp"
#include "apps/eval/eval_output.hpp"
#include "apps/eval/eval_request.hpp"
#include "kernels/engine/token_kinds.hpp"
#include "sim/core/files.hpp"

namespace kvroof {
namespace {

Tokenizer tokenizer_of(const EvalRequest& request) {
  const std::filesystem::path path = request.model / "tokenizer.json";
  if (!std::filesystem::exists(path)) {
    throw usage_error(fmt::format("{}: no tokenizer.json in this folder", request.model.string()))
        .note("eval reads texts, so it needs the model's tokenizer");
  }
  return Tokenizer::load(path);
}

// `notes` get what is to be said of the checkpoint and of how products were made.
std::vector<EvalPoint> evaluate_all(const Arguments& arguments, const EvalRequest& request, const EvalRun& run,
                                    std::vector<std::string>& notes) {
  Model model = open_model(request.model, request.weight_type);
  notes.insert(notes.end(), model.notes.begin(), model.notes.end());
  std::set<std::string> products;
  add_token_kinds(model, request.points);
  make_host_elements(request.backend.kind, arguments, model, request.points);
  const std::uint64_t total = expected_tokens(run) * request.points.size();
  std::uint64_t done = 0;
  std::vector<EvalPoint> points;
  for (const PolicySpec& spec : request.points) {
    Progress progress(arguments, "evaluating " + spec.text());
    const auto backend = make_backend(request.backend, arguments, model, spec);
    points.push_back(evaluate(run, *backend, spec, [&](std::size_t tokens) { progress.at(done += tokens, total); }));
    products.insert(linear_note(backend->linear_facts()));
  }
  notes.insert(notes.end(), products.begin(), products.end());
  return points;
}

std::string text_of(const EvalTable& result, Format format) {
  if (format == Format::kJson) return format_json_rows(result.table);
  if (format == Format::kCsv) return format_csv(result.table);
  std::string text = format_table(result.table);
  for (const std::string& note : result.footnotes) text += note + "\n";
  return text;
}

int run_eval(const Arguments& arguments) {
  EvalRequest request = parse_eval(arguments);
  const ModelConfig config = load_model_config(request.model);
  settle_backend(request.backend, config, request.points, request.weight_type);
  const Tokenizer tokenizer = tokenizer_of(request);
  const Examples examples = read_examples(arguments, request, config, tokenizer);
  const EvalRun run{config, tokenizer, examples, request.batch, request.max_tokens};
  std::vector<std::string> notes = {request.backend.note};
  const std::vector<EvalPoint> points = evaluate_all(arguments, request, run, notes);
  if (request.details) write_text_file(*request.details, eval_details(examples, points));
  if (!request.svg.empty()) write_text_file(request.svg, needle_svg(std::get<NeedleExamples>(examples), points));
  write_result(arguments, text_of(eval_table(examples, points, format_of(arguments)), format_of(arguments)));
  if (arguments.quiet) return 0;
  for (const std::string& note : notes) {
    if (!note.empty()) say("note: {}\n", note);
  }
  for (const std::string& note : eval_notes(run, points)) say("{}\n", note);
  return 0;
}

}  // namespace

Command eval_command() {
  Command command;
  command.name = "eval";
  command.summary = "what a policy costs in quality: perplexity, needles, ROUGE and F1, multiple choice";
  command.usage = "--model DIR --text F | --jsonl F [--policy SPEC[,SPEC…]] [--budget B[,B…]] [options]";
  command.examples =
      "  kvroof eval --model demo --text models/demo/prompts/sqlite-rbu.txt --policy window,h2o --budget 0.2,0.5\n"
      "  kvroof eval --model DIR --text book.txt --context 4k --prompt 2k --policy keyformer:budget=0.5\n"
      "  kvroof eval --model demo --text models/demo/held-out.txt --task needle --policy window,h2o --budget 0.5\n"
      "  kvroof eval --model DIR --jsonl summaries.jsonl --max-tokens 64 --policy h2o:budget=0.5\n"
      "  kvroof eval --model DIR --jsonl qa.jsonl --template '{context} Question: {input}' --metric f1,exact\n"
      "  kvroof eval --model DIR --jsonl scbench.jsonl -n 32 --metric contains --policy snapkv,h2o --budget 0.25\n"
      "  kvroof eval --model DIR --jsonl questions.jsonl --prompt 0.5 --policy h2o:budget=0.5";
  command.describe = describe_eval;
  command.run = run_eval;
  return command;
}

}  // namespace kvroof
