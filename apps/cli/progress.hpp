// A line on the terminal that says how far long work is.
#pragma once

#include <cstdint>
#include <string>

#include "apps/cli/command.hpp"

namespace kvroof {

// A line of progress on stderr, only on a terminal and unless --quiet.
class Progress {
 public:
  Progress(const Arguments& arguments, std::string what);
  ~Progress();
  void at(std::uint64_t done, std::uint64_t total);
  // What is under way, behind the share that is done: of a part that takes long by itself.
  void under_way(const std::string& what);

 private:
  void print(const std::string& more) const;

  std::string what_;
  bool active_ = false;
  std::uint64_t last_ = 0;
};

}  // namespace kvroof
