// A file under a temporary name, while it is written for long.
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

}  // namespace kvroof
