#include "apps/unfinished_file.hpp"

#include <csignal>
#include <string>

#include <unistd.h>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};

std::string g_path;                              // whole while g_unfinished is set
volatile std::sig_atomic_t g_unfinished = 0;     // looked at by the handler

void remove_and_end(int signal) {
  if (g_unfinished != 0) ::unlink(g_path.c_str());
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

UnfinishedFile::UnfinishedFile(const std::filesystem::path& path) {
  check(g_unfinished == 0, "one file at a time is unfinished");
  g_path = path.string();
  g_unfinished = 1;
  for (const int signal : kEnding) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = remove_and_end;
    sigaction(signal, &action, nullptr);
  }
}

UnfinishedFile::~UnfinishedFile() { g_unfinished = 0; }

}  // namespace kvroof
