// The files that a command line names: whether they can be written, and none over another.
#pragma once

#include "apps/cli/command.hpp"

namespace kvroof {

// Before what takes long. Throws Error (usage) where two options would write one file, or where one would replace a
// file that is read; Error where a file cannot be written. Devices and pipes take any number of texts.
void check_written_files(const Command& command, const Arguments& arguments);

}  // namespace kvroof
