// kvroof run: decodes a prompt under an eviction policy and says what it cost.
#include "apps/generate/generate.hpp"
#include "apps/generate/generate_request.hpp"

namespace kvroof {
namespace {

int run(const Arguments& arguments) { return generate(arguments, std::nullopt); }

}  // namespace

Command run_command() {
  Command command;
  command.name = "run";
  command.summary = "decode a prompt under an eviction policy; text on stdout, speed and bytes on stderr";
  command.usage = "--model DIR --prompt-file F [options]";
  command.examples =
      "  kvroof run --model demo --prompt-file models/demo/prompts/sqlite-rbu.txt --max-tokens 64\n"
      "  kvroof run --model DIR --prompt \"Once upon a time\" --policy keyformer:budget=0.5\n"
      "  kvroof run --model DIR --ids \"5 17\" --dump-logits logits.safetensors";
  command.describe = describe_generate;
  command.run = run;
  command.formats = "table | json";
  return command;
}

}  // namespace kvroof
