// What the injected library and the program that injects it agree on.
#pragma once

namespace kvroof {

// The folder for spools of processes; without it the library does nothing.
inline constexpr const char* kSpoolFolderVariable = "KVROOF_SPOOL_FOLDER";
// Set: a launch of a CUDA graph is one record.
inline constexpr const char* kWholeGraphsVariable = "KVROOF_WHOLE_GRAPHS";
inline constexpr const char* kSpoolEnding = ".spool";
inline constexpr const char* kInjectLibrary = "libkvroof_inject.so";

}  // namespace kvroof
