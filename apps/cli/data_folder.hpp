// Where the data that comes with the program is.
#pragma once

#include <filesystem>

namespace kvroof {

// Where catalog/ and models/ are: $KVROOF_HOME, else beside or above the program, else in the current folder. Throws
// Error.
std::filesystem::path data_folder();

}  // namespace kvroof
