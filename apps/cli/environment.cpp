#include "apps/cli/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/cli/messages.hpp"
#include "apps/cli/options.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {
namespace {

struct Variable {
  const char* name;
  const char* meaning;
};

// Every variable that a source names; a test compares.
constexpr Variable kVariables[] = {
    {"KVROOF_HOME", "the folder that holds catalog/, models/ and validation/"},
    {"KVROOF_NO_OVERLAP", "of the CUDA back end: no kernel begins before the one before it has ended"},
    {"KVROOF_NO_GRAPHS", "of the CUDA back end: steps are launched kernel by kernel, not as CUDA graphs"},
    {"KVROOF_WHOLE_GRAPHS", "of `record -- CMD`: launches of CUDA graphs are recorded as wholes"},
    {"KVROOF_SPOOL_FOLDER", "of `record -- CMD`: set for the program, the folder of its records"},
    {"KVROOF_EMULATED_BYTES", "of the emulator of tests: memory of its device"},
    {"KVROOF_EMULATED_BACKWARDS", "of the emulator of tests: blocks run from the last to the first"},
    {"KVROOF_EMULATED_CUPTI", "of the emulator of tests: activity goes to a stand-in for CUPTI"},
    {"KVROOF_EMULATED_LIBRARIES", "of the emulator of tests: the folder of stand-ins for CUDA's libraries"},
    {"KVROOF_MADE_CUBLASLT", "of tests: what the stand-in for cuBLASLt refuses"},
    {"KVROOF_GOLDEN_POLICIES", "of tests: another folder of references of policies"},
};

}  // namespace

void print_environment() {
  fmt::print(
      "KVROOF_DEVICE stands for --device, KVROOF_MAX_TOKENS for --max-tokens, and so on for every option but --help,\n"
      "--config and --print-config. Words of the command line come first, then the environment, then the file of\n"
      "--config. An empty variable is none.\n\n");
  for (const auto& [name, meaning] : kVariables) fmt::print("  {:<26} {}\n", name, meaning);
}

void report_unknown_variables(std::span<const Command> commands) {
  std::vector<std::string> known;
  for (const auto& [name, meaning] : kVariables) known.emplace_back(name);
  for (const Command& command : commands) {
    for (std::string& name : option_variables(command)) known.push_back(std::move(name));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t end = text.find('=');
    const std::string name = text.substr(0, end);
    if (!name.starts_with("KVROOF_") || end == std::string::npos || end + 1 == text.size()) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    say("note: environment: {} is no variable of kvroof{} (`kvroof help environment`)\n", name,
        did_you_mean(name, known));
  }
}

}  // namespace kvroof
