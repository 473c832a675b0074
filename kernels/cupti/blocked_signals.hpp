// BlockedSignals: while it lives, its thread takes no signal that another one could.
#pragma once

#include <csignal>
#include <initializer_list>

namespace kvroof {

// For what a recorder does within someone else's program. A thread that begins meanwhile never takes one: else a
// program that blocks a signal in all of its threads, to wait for it, would end by it. A write beyond the file size
// limit fails, and no signal stays behind that would end the program. Signals of a thread's own faults are as before.
class BlockedSignals {
 public:
  // kWriting: of the file size limit alone, so that a program that waits can still be ended.
  enum Which { kAll, kWriting };
  explicit BlockedSignals(Which which = kAll) {
    sigset_t pending, blocked;
    sigpending(&pending);
    had_limit_ = sigismember(&pending, SIGXFSZ) == 1;
    which == kAll ? sigfillset(&blocked) : sigemptyset(&blocked);
    sigaddset(&blocked, SIGXFSZ);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() {
    if (!had_limit_) {
      sigset_t limit;
      sigemptyset(&limit);
      sigaddset(&limit, SIGXFSZ);
      const timespec at_once{};
      sigtimedwait(&limit, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
  bool had_limit_ = false;
};

}  // namespace kvroof
