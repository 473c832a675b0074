// kvroof record: a run that leaves a trace.
#include <fmt/format.h>

#include "apps/generate.hpp"
#include "apps/generate_request.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

fs::path trace_path(const Arguments& arguments) {
  if (!arguments.has("out")) throw usage_error("-o run.kvt is missing: where the trace goes");
  const fs::path path = arguments.get<std::string>("out");
  std::error_code ignored;
  if (fs::exists(path, ignored) && !(fs::is_directory(path, ignored) && fs::is_empty(path, ignored))) {
    throw usage_error(fmt::format("{}: exists already, and a recording never overwrites", path.string()))
        .note("choose another name, or remove it first");
  }
  return path;
}

void describe_record(boost::program_options::options_description_easy_init add) {
  describe_generate(add);
  add("prompt-logprobs", "also record the log-probabilities of the prompt: all its logits are then computed");
}

int record(const Arguments& arguments) { return generate(arguments, trace_path(arguments)); }

}  // namespace

Command record_command() {
  Command command;
  command.name = "record";
  command.summary = "run a prompt and record queries, keys, values and evictions as a trace";
  command.usage = "--model DIR --prompt-file F -o run.kvt [options]";
  command.examples =
      "  kvroof record --model demo --prompt-file models/demo/prompts/sqlite-rbu.txt --max-tokens 128 -o run.kvt\n"
      "  kvroof record --model DIR --prompt-file F --policy h2o:budget=0.2 --backend reference -o h2o.kvt";
  command.describe = describe_record;
  command.run = record;
  command.formats = "table | json";
  return command;
}

}  // namespace kvroof
