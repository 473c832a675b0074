// What is removed where a signal ends the program: a file that is written for long, under a temporary name, and a
// folder of temporary files.
#pragma once

#include <filesystem>

namespace kvroof {

// Removes the file where Ctrl-C or another signal ends the program before this object does; the program still ends by
// that signal. One at a time. Signals that are ignored or handled already stay so.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::filesystem::path& path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
};

// The same of a folder with all that is in it, from now on; an empty path: of none any more.
void remove_at_signals(const std::filesystem::path& folder);

}  // namespace kvroof
