// What is removed where a signal ends the program: a file that is written for long, under a temporary name, or a
// folder.
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

// The same of a folder that this program makes, with all that is in it. One that is there already stays.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(const std::filesystem::path& path);
  ~UnfinishedFolder();
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
};

// Likewise of a folder that was made just now, until this is called again; an empty path: of none any more.
void remove_at_signals(const std::filesystem::path& folder);

}  // namespace kvroof
