// What run and record have in common: load, decode, print; with a trace for record.
#pragma once

#include <filesystem>
#include <optional>

#include "apps/cli/command.hpp"

namespace kvroof {

// Returns the exit code: 0, or 128 and the signal that interrupted it (after sealing). Throws Error.
int generate(const Arguments& arguments, const std::optional<std::filesystem::path>& trace);

}  // namespace kvroof
