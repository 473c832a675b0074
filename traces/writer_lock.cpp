#include "traces/writer_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "sim/core/error.hpp"
#include "traces/journal.hpp"

namespace kvroof {
namespace {

// 0, or errno.
int lock_now(int descriptor, int how) {
  while (::flock(descriptor, how | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// Who asks whether there is a writer (has_writer()) holds the lock for a moment: no writer is refused for that. 0, or
// errno.
int lock_against_writers(int descriptor) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongest{100};
  int refused = lock_now(descriptor, LOCK_EX);
  for (milliseconds waited{0}; refused == EWOULDBLOCK && waited < kLongest; ++waited) {
    std::this_thread::sleep_for(milliseconds(1));
    refused = lock_now(descriptor, LOCK_EX);
  }
  return refused;
}

}  // namespace

WriterLock::WriterLock(const std::filesystem::path& trace, Of of) : file_(trace / kLockFile) {
  const bool is_new = of == Of::kNewTrace;
  // Open for writing, which network file systems ask of a lock that excludes others.
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CLOEXEC | (is_new ? O_CREAT : 0), 0666);
  if (descriptor_ < 0) {
    if (!is_new && (errno == ENOENT || errno == ENOTDIR)) return;
    throw Error(fmt::format("{}: cannot be written: {}", file_.string(), std::generic_category().message(errno)));
  }
  const int refused = lock_against_writers(descriptor_);
  if (refused == 0 || (is_new && refused != EWOULDBLOCK)) return;
  release();
  if (refused == EWOULDBLOCK) {
    throw Error(fmt::format("{}: a program still writes it: expected {}", trace.string(),
                            is_new ? "a name that no other recording has"
                                   : "a recording that has ended, to be repaired then"),
                is_new ? ExitCode::kUsage : ExitCode::kDamagedTrace);
  }
  throw Error(fmt::format("{}: this filesystem has no locks of files, which would show whether the recording still "
                          "runs: expected a copy of the trace on another one",
                          file_.string()),
              ExitCode::kDamagedTrace);
}

WriterLock::~WriterLock() { release(); }

void WriterLock::release() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

void WriterLock::remove() {
  if (descriptor_ < 0) return;
  std::error_code ignored;  // of a sealed trace the file means nothing
  std::filesystem::remove(file_, ignored);
  release();
}

bool has_writer(const std::filesystem::path& trace) {
  const int descriptor = ::open((trace / kLockFile).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  // Shared, so that two who ask at once do not take each other for the writer.
  const int refused = lock_now(descriptor, LOCK_SH);
  ::close(descriptor);
  return refused == EWOULDBLOCK;
}

}  // namespace kvroof
