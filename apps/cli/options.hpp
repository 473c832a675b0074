// Parsing of a verb's options: flags, then KVROOF_* variables, then the YAML file of --config, then defaults.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/command.hpp"

namespace kvroof {

// KVROOF_MAX_TOKENS for --max-tokens …: of a verb's own options and the common ones.
std::vector<std::string> option_variables(const Command& command);

// Prints usage, examples and options of a verb.
void print_help(const Command& command);

// Nothing when --help or --print-config was answered. Throws Error (usage) for unknown options and keys (with "did you
// mean", or which of all commands have the option), repeated scalars, values that do not parse and wrong numbers of
// words.
std::optional<Arguments> parse_arguments(const Command& command, const std::vector<std::string>& words,
                                         std::span<const Command> commands);

// Words as a shell takes them back: those that it would cut or change stand in quotes.
std::string command_text(const std::vector<std::string>& words);

}  // namespace kvroof
