// kvroof record: a run that leaves a trace.
#include <fmt/format.h>

#include "apps/generate/generate.hpp"
#include "apps/generate/generate_request.hpp"
#include "apps/generate/record_profile.hpp"
#include "apps/generate/record_program.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

fs::path trace_path(const Arguments& arguments) {
  if (!arguments.has("out")) throw usage_error("-o run.kvt is missing: where the trace goes");
  const fs::path path = arguments.get<std::string>("out");
  if (path.empty()) throw usage_error("-o '': expected a name: where the trace goes");
  std::error_code ignored;
  // A link that leads nowhere is something as well, which no folder can take the place of.
  const fs::path entry = path.has_filename() ? path : path.parent_path();
  if (fs::exists(fs::symlink_status(entry, ignored)) &&
      !(fs::is_directory(path, ignored) && fs::is_empty(path, ignored))) {
    throw usage_error(fmt::format("{}: exists already, and a recording never overwrites", path.string()))
        .note("choose another name, or remove it first");
  }
  return path;
}

void describe_record(boost::program_options::options_description_easy_init add) {
  describe_generate(add);
  add("cupti", boost::program_options::value<std::string>()->default_value("none"), kCuptiHelp)(
      "ranges", boost::program_options::value<std::string>()->default_value("step"), kRangesHelp)(
      "no-capture", "leave out queries, keys and values: steps, kernels and counters alone, at full speed")(
      "prompt-logprobs", "also record the log-probabilities of the prompt: all its logits are then computed");
}

int record(const Arguments& arguments) {
  const fs::path path = trace_path(arguments);
  return arguments.program.empty() ? generate(arguments, path) : record_program(arguments, path);
}

}  // namespace

Command record_command() {
  Command command;
  command.name = "record";
  command.summary = "run a prompt and record queries, keys, values and evictions; or a program's GPU work";
  command.usage = "--model DIR --prompt-file F -o run.kvt [options], or -o run.kvt -- CMD ARGS…";
  command.examples =
      "  kvroof record --model demo --prompt-file models/demo/prompts/sqlite-rbu.txt --max-tokens 128 -o run.kvt\n"
      "  kvroof record --model DIR --prompt-file F --policy h2o:budget=0.2 --backend reference -o h2o.kvt\n"
      "  kvroof record --model DIR --prompt-file F --backend cuda --cupti trace --no-capture -o run.kvt\n"
      "  kvroof record -o vllm.kvt -- python3 serve.py    (its kernels, copies and NVTX ranges)";
  command.describe = describe_record;
  command.run = record;
  command.formats = "table | json";
  command.out = "the trace, a new folder";
  command.takes_program = true;
  return command;
}

}  // namespace kvroof
