#include "apps/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command.hpp"
#include "apps/cli/environment.hpp"
#include "apps/cli/messages.hpp"
#include "apps/cli/options.hpp"
#include "apps/cli/pipe_signal.hpp"
#include "kvroof_version.hpp"
#include "sim/core/suggest.hpp"

// The table of verbs, in the order of the overview and under what a person comes with: a new one is a file that defines
// its Command VERB_command(), and a line here.
#define KVROOF_VERBS(purpose, verb) \
  purpose("how many users, how fast, at what price") \
  verb(plan) \
  verb(simulate) \
  verb(prefixes) \
  verb(compare) \
  verb(validate) \
  verb(calibrate) \
  purpose("what a policy keeps and what it costs in quality") \
  verb(record) \
  verb(replay) \
  verb(analyze) \
  verb(eval) \
  verb(run) \
  purpose("traces and profiles") \
  verb(inspect) \
  verb(import) \
  verb(export) \
  verb(report_kernels) \
  purpose("what is known") \
  verb(models) \
  verb(devices) \
  verb(engines) \
  verb(policies) \
  verb(doctor) \
  purpose("others") \
  verb(tokenize) \
  verb(detokenize)

namespace kvroof {

#define KVROOF_NOTHING(title)
#define KVROOF_DECLARE(verb) Command verb##_command();
KVROOF_VERBS(KVROOF_NOTHING, KVROOF_DECLARE)
#undef KVROOF_DECLARE
#undef KVROOF_NOTHING

namespace {

struct Purpose {
  std::string_view title;
  std::vector<Command> commands;
};

std::vector<Purpose> verbs_by_purpose() {
  std::vector<Purpose> all;
#define KVROOF_PURPOSE(title) all.push_back({title, {}});
#define KVROOF_VERB(verb) all.back().commands.push_back(verb##_command());
  KVROOF_VERBS(KVROOF_PURPOSE, KVROOF_VERB)
#undef KVROOF_VERB
#undef KVROOF_PURPOSE
  return all;
}

std::vector<Command> command_table() {
  std::vector<Command> all;
  for (const Purpose& purpose : verbs_by_purpose()) {
    all.insert(all.end(), purpose.commands.begin(), purpose.commands.end());
  }
  return all;
}

void print_overview(std::FILE* to) {
  fmt::print(
      to,
      "kvroof {}: what a KV-cache eviction policy will really do on your GPU\n\n"
      "  kvroof plan --model llama-3-8b --device h100-sxm --policy h2o --budget 0.5 --prompt 4k --output 1k\n"
      "  kvroof record --model demo --prompt-file models/demo/prompts/sqlite-rbu.txt -o run.kvt\n"
      "  kvroof replay run.kvt --policy full,h2o,keyformer --budget 0.5 --as mpt-7b --device h200,l40s\n",
      kVersion);
  for (const Purpose& purpose : verbs_by_purpose()) {
    fmt::print(to, "\n{}:\n", purpose.title);
    for (const Command& command : purpose.commands) fmt::print(to, "  {:<14} {}\n", command.name, command.summary);
  }
  fmt::print(to, "\n`kvroof help COMMAND` says more; every option may also stand in a file (--config F) or in the\n"
                 "environment (KVROOF_DEVICE for --device; `kvroof help environment`). docs/tutorial.md leads from a\n"
                 "question to an answer.\n");
}

const Command& find_command(const std::vector<Command>& commands, const std::string& name) {
  std::vector<std::string> known = {"help", "version"};
  for (const Command& command : commands) {
    if (command.name == name) return command;
    known.emplace_back(command.name);
  }
  throw usage_error(fmt::format("unknown command '{}'{}", name, did_you_mean(name, known)))
      .note("`kvroof help` lists the commands");
}

int run_program(const std::vector<std::string>& words) {
  const std::vector<Command> commands = command_table();
  const std::string first = words.empty() ? "help" : words[0];
  if (first == "--version" || first == "version") {
    fmt::print("kvroof {}\n", kVersion);
    return 0;
  }
  if (first == "help" || first == "--help" || first == "-h") {
    if (words.size() > 1 && words[1] == "environment") {
      print_environment();
    } else if (words.size() > 1) {
      print_help(find_command(commands, words[1]));
    } else {
      print_overview(stdout);
    }
    return 0;
  }
  const Command& command = find_command(commands, first);
  report_unknown_variables(commands);
  const auto arguments = parse_arguments(command, {words.begin() + 1, words.end()}, commands);
  return arguments ? command.run(*arguments) : 0;
}

int report(const Error& error) {
  say("error: {}\n", error.what());
  for (const std::string& note : error.notes()) say("note: {}\n", note);
  return static_cast<int>(error.code());
}

}  // namespace

int kvroof_program(int argc, char** argv) {
  end_at_closed_pipes();
  try {
    const int code = run_program({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw Error("standard output: the result could not be written (disk full or closed)");
    }
    return code;
  } catch (const Error& error) {
    std::fflush(stdout);
    return report(error);
  } catch (const std::bad_alloc&) {
    say("error: out of memory\nnote: a smaller batch, context or number of policies needs less\n");
  } catch (const std::exception& error) {
    say("error: {}\n", error.what());
  }
  return static_cast<int>(ExitCode::kFailure);
}

}  // namespace kvroof
