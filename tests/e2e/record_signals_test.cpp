// Signals of kvroof record -- CMD: the program has its answers to them as by itself, and what is sent to us is its.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/made_recording.hpp"

using namespace kvroof::test;

namespace {

void wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 1000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// A shell that is recorded, in a process group of its own: it writes a line "begun", and one for each signal of `names`
// that it gets, and ends with 9 at SIGTERM, or by itself after some seconds.
class RecordedShell {
 public:
  explicit RecordedShell(const std::string& names) {
    const std::string program =
        "for s in " + names + "; do trap \"echo $s >>" + log_ + "\" $s; done; trap 'exit 9' TERM; echo begun >>" +
        log_ + "; n=0; while [ $n -lt 200 ]; do sleep 0.05; n=$((n+1)); done";
    recorder = fork();
    REQUIRE(recorder >= 0);
    if (recorder == 0) {
      setpgid(0, 0);
      execl(KVROOF_PROGRAM, KVROOF_PROGRAM, "record", "-q", "-o", trace.c_str(), "--", "/bin/sh", "-c",
            program.c_str(), nullptr);
      _exit(126);
    }
    wait_until([&] { return lines() == 1; });
  }
  // What the shell has written, once it has a line more than before.
  std::string after(int signal) {
    const auto before = lines();
    kill(recorder, signal);
    wait_until([&] { return lines() > before; });
    return slurp(log_);
  }
  [[nodiscard]] std::ptrdiff_t lines() const {
    const std::string text = slurp(log_);
    return std::count(text.begin(), text.end(), '\n');
  }
  [[nodiscard]] int status(int options = 0) const {
    int status = 0;
    waitpid(recorder, &status, options);
    return status;
  }

 private:
  TemporaryFolder folder_;
  std::string log_ = folder_.file("log");

 public:
  std::string trace = folder_.file("run.kvt");
  pid_t recorder = -1;
};

}  // namespace

TEST_CASE("A signal of any number that is sent to the recorder reaches the program, and does not end the recorder") {
  const std::string real_time = std::to_string(SIGRTMIN + 6);
  RecordedShell shell("ALRM WINCH CONT ABRT PIPE " + real_time);
  std::string log;
  for (const int signal : {SIGALRM, SIGWINCH, SIGCONT, SIGABRT, SIGPIPE, SIGRTMIN + 6}) log = shell.after(signal);
  CHECK(log == "begun\nALRM\nWINCH\nCONT\nABRT\nPIPE\n" + real_time + "\n");
  kill(shell.recorder, SIGTERM);
  const int status = shell.status();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 9));
  CHECK(note_of(shell.trace, "exit_code") == "9\n");
}

TEST_CASE("A recorder that is told to stop tells the program and stops until it is to continue, which it passes on") {
  RecordedShell shell("TSTP CONT");
  CHECK(shell.after(SIGTSTP) == "begun\nTSTP\n");
  CHECK(WIFSTOPPED(shell.status(WUNTRACED)));
  CHECK(shell.after(SIGCONT) == "begun\nTSTP\nCONT\n");
  kill(shell.recorder, SIGTERM);
  const int status = shell.status();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 9));
}

TEST_CASE("A closed pipe ends a recorded program, or is ignored by it, as the recorder was started") {
  const TemporaryFolder folder;
  for (const auto& [answer, code] : {std::pair(SIG_IGN, 3), std::pair(SIG_DFL, 128 + SIGPIPE)}) {
    auto* const before = signal(SIGPIPE, answer);
    CHECK(run_program("record -q -o " + folder.file(std::to_string(code)) + " -- /bin/sh -c 'kill -PIPE $$; exit 3'")
              .code == code);
    signal(SIGPIPE, before);
  }
}

TEST_CASE("The exit code of a program is known where the recorder was started with ends of children ignored") {
  const TemporaryFolder folder;
  CHECK(run_program("record -q -o " + folder.file("run.kvt") + " -- /bin/sh -c 'exit 3'",
                    "trap '' CHLD; exec " KVROOF_PROGRAM).code == 3);
}
