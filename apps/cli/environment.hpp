// Variables of the environment that the program heeds: those of options, and those in a table of their own.
#pragma once

#include <span>

#include "apps/cli/command.hpp"

namespace kvroof {

// `kvroof help environment`: all but those of options, which are said in a sentence.
void print_environment();

// A note on stderr for each KVROOF_* variable that has a value and that nothing heeds, with the nearest that exists.
void report_unknown_variables(std::span<const Command> commands);

}  // namespace kvroof
