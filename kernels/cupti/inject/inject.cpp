// The library that CUDA loads into someone else's program (CUDA_INJECTION64_PATH): records what the GPU does into a
// spool of the process, and never prints, throws or ends anything. `kvroof record -- CMD` names it and reads the spool.
#include "kernels/cupti/inject/inject.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>

#include "kernels/cupti/activity_recorder.hpp"
#include "kernels/cupti/blocked_signals.hpp"
#include "kernels/cupti/cupti_library.hpp"
#include "kernels/cupti/machine.hpp"
#include "kernels/cupti/profile_spool.hpp"

namespace kvroof {
namespace {

struct Recording {
  std::unique_ptr<SpoolWriter> spool;
  CuptiLibrary cupti;
  std::unique_ptr<ActivityRecorder> recorder;
  pid_t process = 0;
};
// Never destroyed: CUPTI may call until the process is gone.
Recording* g_recording = nullptr;

// A process that became another program by exec has a file for each.
std::unique_ptr<SpoolWriter> make_spool(const std::filesystem::path& folder) {
  constexpr int kMostPrograms = 1000;
  for (int n = 0;; ++n) {
    try {
      return std::make_unique<SpoolWriter>(folder / fmt::format("{}-{}{}", getpid(), n, kSpoolEnding));
    } catch (const Error&) {
      if (n == kMostPrograms) throw;
    }
  }
}

void end_recording() {
  // A forked child inherits the exit handler, but neither the recorder's thread nor CUDA.
  if (g_recording == nullptr || g_recording->process != getpid()) return;
  const BlockedSignals blocked(BlockedSignals::kWriting);
  try {
    g_recording->recorder->leave();
    g_recording->spool->flush();
  } catch (const std::exception&) {  // the spool says as much as it could
  }
}

// NVTX reads this at its first call. A program may have brought a CUPTI of its own, as PyTorch does: ranges that went
// to another copy would reach nobody. Where the user has named something else, that has the ranges.
void send_ranges_to(const CuptiLibrary& cupti) {
  const char* const named = std::getenv(kNvtxVariable);
  if (named != nullptr && *named != '\0' && !names_cupti(named)) return;
  if (cupti.version == kCuptiWithoutNvtx) {
    unsetenv(kNvtxVariable);
  } else if (cupti.path.starts_with('/')) {
    setenv(kNvtxVariable, cupti.path.c_str(), 1);
  }
}

void begin_recording(const std::filesystem::path& folder) {
  auto recording = std::make_unique<Recording>();
  recording->process = getpid();
  recording->spool = make_spool(folder);
  SpoolWriter& spool = *recording->spool;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  spool.note("process", fmt::format("{} {}", getpid(), program.string()));
  spool.add(ProcessRecord{static_cast<std::uint32_t>(getpid()), program.native()});
  spool.flush();
  auto cupti = load_cupti(this_machine());
  if (!cupti) {
    spool.note("why", cupti.error());
    return spool.flush();
  }
  recording->cupti = std::move(cupti).value();
  send_ranges_to(recording->cupti);
  ActivityOptions options;
  options.ranges = true;
  options.beside_unnamed = true;  // PyTorch's profiler subscribes when it is loaded, and most programs never use it
  options.shared_buffers = true;  // a server has more threads than there are buffers, most of which launch little
  options.flush_ms = 1000;  // a program that is killed loses little
  options.process = static_cast<std::uint32_t>(getpid());
  options.whole_graphs = std::getenv(kWholeGraphsVariable) != nullptr;
  recording->recorder = std::make_unique<ActivityRecorder>(*recording->cupti.activity, spool, options);
  const std::string why = recording->recorder->start();
  if (!why.empty()) {
    spool.note("why", why);
    return spool.flush();
  }
  // From here on the recorder's thread has the spool.
  g_recording = recording.release();
  std::atexit(end_recording);
}

}  // namespace
}  // namespace kvroof

// CUDA calls it when the driver starts, before the first context. 1: all is well, whatever was possible.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  static std::atomic<bool> called{false};
  const char* const folder = std::getenv(kvroof::kSpoolFolderVariable);
  if (folder == nullptr || *folder == '\0' || called.exchange(true)) return 1;
  const kvroof::BlockedSignals blocked;
  try {
    kvroof::begin_recording(folder);
  } catch (const std::exception&) {  // a program runs without its recording
  }
  return 1;
}
