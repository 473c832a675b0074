// kvroof record -- CMD: records what a GPU does under someone else's program.
#pragma once

#include <filesystem>

#include "apps/cli/command.hpp"

namespace kvroof {

// Runs arguments.program with the injected library, its streams and its signals its own, and writes what its processes
// recorded as the trace `name`. Returns the program's exit code (128 + signal where one ended it). Throws Error (126,
// 127 as shells) where the program cannot be started, and where the trace cannot be written (its exit code, or
// where that is 0 one of our own); then there is no trace.
int record_program(const Arguments& arguments, const std::filesystem::path& name);

}  // namespace kvroof
