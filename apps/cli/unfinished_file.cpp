#include "apps/cli/unfinished_file.hpp"

#include <atomic>
#include <csignal>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};

// A path, and whether there is something of it to remove, at which the handler looks.
struct AtSignals {
  std::string path;  // whole while `there` is set
  volatile std::sig_atomic_t there = 0;
};
AtSignals g_file, g_folder;

// A folder is read with memory, which a handler may not ask for: another program does it. By vfork: fork takes locks
// first, which the interrupted thread may hold.
void remove_folder(const char* path) {
  const pid_t child = ::vfork();
  if (child == 0) {
    ::execl("/bin/rm", "rm", "-rf", "--", path, static_cast<char*>(nullptr));
    ::_exit(127);
  }
  if (child > 0) ::waitpid(child, nullptr, 0);
}

void remove_and_end(int signal) {
  if (g_file.there != 0) ::unlink(g_file.path.c_str());
  if (g_folder.there != 0) remove_folder(g_folder.path.c_str());
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void watch_for(AtSignals& what, const std::filesystem::path& path) {
  what.path = path.string();
  std::atomic_signal_fence(std::memory_order_release);  // a handler sees the path whole once it sees `there`
  what.there = 1;
  for (const int signal : kEnding) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = remove_and_end;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

UnfinishedFile::UnfinishedFile(const std::filesystem::path& path) {
  check(g_file.there == 0, "one file at a time is unfinished");
  watch_for(g_file, path);
}

UnfinishedFile::~UnfinishedFile() { g_file.there = 0; }

UnfinishedFolder::UnfinishedFolder(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) remove_at_signals(path);
}

UnfinishedFolder::~UnfinishedFolder() { remove_at_signals({}); }

void remove_at_signals(const std::filesystem::path& folder) {
  g_folder.there = 0;
  if (!folder.empty()) watch_for(g_folder, folder);
}

}  // namespace kvroof
