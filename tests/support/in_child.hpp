// Runs a part of a test in a process of its own, which may be killed or have limits.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "sim/core/error.hpp"

namespace kvroof::test {

inline constexpr int kThrew = 10;

// The exit code of `body` (kThrew after an Error), or 128 + the signal that ended it.
inline int in_child(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
    } catch (const Error&) {
      _exit(kThrew);
    } catch (...) {
      _exit(kThrew + 1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace kvroof::test
