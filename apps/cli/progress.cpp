#include "apps/cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "apps/cli/messages.hpp"

namespace kvroof {

Progress::Progress(const Arguments& arguments, std::string what)
    : what_(std::move(what)), active_(!arguments.quiet && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (active_) say("\r\033[K");
}

void Progress::at(std::uint64_t done, std::uint64_t total) {
  if (!active_ || total == 0) return;
  const std::uint64_t percent = done * 100 / total;
  if (percent == last_ && done != total) return;
  last_ = percent;
  print("");
}

void Progress::under_way(const std::string& what) {
  if (active_) print(", " + what);
}

void Progress::print(const std::string& more) const {
  say("\r\033[K{} {:3} %{}", what_, last_, more);
  std::fflush(stderr);
}

}  // namespace kvroof
