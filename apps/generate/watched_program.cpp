#include "apps/generate/watched_program.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <span>

#include "apps/cli/pipe_signal.hpp"
#include "sim/core/error.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

std::atomic<pid_t> g_program{0};
std::atomic<int> g_asked_to_stop{0};

constexpr int kAskToEnd[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU};
constexpr int kStops[] = {SIGTSTP, SIGTTIN, SIGTTOU};
constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};

bool is_among(std::span<const int> signals, int signal) {
  return std::ranges::find(signals, signal) != signals.end();
}

// As the default answer does, which has a group of processes go on that nobody could wake again.
void stop_here(int signal) {
  struct sigaction standard {}, passing {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, &passing);
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, signal);
  raise(signal);
  sigprocmask(SIG_UNBLOCK, &one, &before);  // here it stops, until SIGCONT
  sigprocmask(SIG_SETMASK, &before, nullptr);
  sigaction(signal, &passing, nullptr);
}

void hand_on(pid_t program, int signal, const siginfo_t& info) {
  if (info.si_code == SI_QUEUE) {
    sigqueue(program, signal, info.si_value);
  } else {
    kill(program, signal);
  }
}

// What someone sent, and not the terminal or this process itself (by a write to a closed pipe, or abort), is passed on;
// so is an alarm, which was set before this process became the recorder and is then meant for the program.
void pass_on(int signal, siginfo_t* info, void*) {
  const int before = errno;
  const pid_t program = g_program.load();
  const bool sent = info->si_code <= 0 && info->si_pid != getpid();
  if (is_among(kFaults, signal) && info->si_code > 0) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // ends this process when the handler returns
    return;
  }
  if (program > 0 && (sent || signal == SIGALRM)) hand_on(program, signal, *info);
  if (program == 0 && is_among(kAskToEnd, signal)) g_asked_to_stop = signal;
  if (is_among(kStops, signal)) stop_here(signal);
  errno = before;
}

// All but SIGCHLD, and those that are ignored (under nohup SIGHUP): the program ignores them as well.
void pass_signals_on() {
  struct sigaction action {};
  action.sa_sigaction = pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    struct sigaction own {};
    if (signal == SIGCHLD || sigaction(signal, nullptr, &own) != 0 || own.sa_handler != SIG_DFL) continue;
    sigaction(signal, &action, nullptr);  // refused for SIGKILL and SIGSTOP, which nobody can catch
  }
}

// A shell's exit codes for a command that is not there, and for one that is and cannot be run.
constexpr auto kNotFound = static_cast<ExitCode>(127);
constexpr auto kNotExecutable = static_cast<ExitCode>(126);

// What a shell answers where it cannot run a command. A script's first line, or a binary's, names another program.
Error cannot_run(const std::string& command, int why) {
  std::error_code ignored;
  const bool there = command.find('/') != std::string::npos && fs::exists(command, ignored);
  std::string text = std::strerror(why);
  if (why == ENOENT && there) text = "the interpreter that it names is not there";
  if (why == ENOENT && command.find('/') == std::string::npos) text = "not found in PATH";
  if (why == EACCES && fs::is_directory(command, ignored)) text = "it is a folder";
  if (why == ENOEXEC) text = "it is neither a program for this machine nor a script that begins with #!";
  return Error(fmt::format("{}: cannot be run: {}; nothing was recorded, and there is no trace", command, text),
               why == ENOENT && !there ? kNotFound : kNotExecutable);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

// An errno where it is refused. Signals that are caught here have the default answer in the program.
int start_program(std::vector<std::string>& words, std::vector<std::string>& variables, const sigset_t& mask,
                  pid_t& process) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &mask);
  const int refused = posix_spawnp(&process, words[0].c_str(), nullptr, &attributes, pointers(words).data(),
                                   pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  return refused;
}

}  // namespace

int run_to_its_end(std::vector<std::string> words, std::vector<std::string> variables) {
  restore_pipe_signal();
  std::signal(SIGCHLD, SIG_DFL);  // where children's ends are ignored, nobody is told how they ended
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);  // until there is someone to pass them to
  pass_signals_on();
  pid_t process = 0;
  const int refused = start_program(words, variables, before, process);
  g_program.store(refused == 0 ? process : 0);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (refused != 0) throw cannot_run(words[0], refused);
  siginfo_t end {};
  while (waitid(P_PID, static_cast<id_t>(process), &end, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  g_program.store(0);  // while its number cannot be another's yet
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const std::atomic<int>& asked_to_stop() { return g_asked_to_stop; }

}  // namespace kvroof
