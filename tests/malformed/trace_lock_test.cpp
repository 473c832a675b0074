// The lock of a trace: held while it is written, and by nobody once its writer has ended, however it did.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/in_child.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_trace.hpp"
#include "traces/writer_lock.hpp"

using namespace kvroof;
using namespace kvroof::test;
namespace fs = std::filesystem;

namespace {

// Why a repair is refused; empty: it is not.
std::string refusal(const fs::path& trace) {
  try {
    repair_trace(trace);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kDamagedTrace);
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("A trace that is still written is not repaired, also without a profiler, and nothing of it is touched") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  const TraceManifest m = small_manifest();
  TraceWriter writer(trace, m, 1);
  small_step(writer, m, 0);
  small_step(writer, m, 1);
  CHECK(refusal(trace) == trace.string() + ": a program still writes it: expected a recording that has ended, to be "
                                           "repaired then");
  CHECK_FALSE(fs::exists(trace / "lost"));
  const TraceReport report = inspect_trace(trace, false);
  CHECK_FALSE(report.sealed);
  CHECK(report.problems == std::vector<std::string>{"it is still being written"});
  for (std::uint32_t step = 2; step < kSmallSteps; ++step) small_step(writer, m, step);
  for (const TraceSequence& sequence : m.sequences) writer.set_stop_reason(sequence.id, "length");
  writer.seal();
  CHECK(inspect_trace(trace, true).intact);
  CHECK(TraceReader::open(trace).steps().size() == kSmallSteps);
}

TEST_CASE("The file of the lock goes with the seal, be it the writer's or a repair's") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt", file = trace / "writer.lock";
  {
    const TraceManifest m = small_manifest();
    TraceWriter writer(trace, m, 1);
    CHECK(fs::exists(file));
    small_step(writer, m, 0);
  }
  REQUIRE(fs::exists(file));  // as a killed recorder leaves it
  {
    const WriterLock other_repair(trace, WriterLock::Of::kLeftTrace);
    CHECK(refusal(trace).find("a program still writes it") != std::string::npos);
  }
  CHECK(refusal(trace).empty());
  CHECK_FALSE(fs::exists(file));
  write_small_trace(folder.path() / "other.kvt");
  CHECK_FALSE(fs::exists(folder.path() / "other.kvt/writer.lock"));
}

TEST_CASE("Who asks whether a trace is being written keeps nobody from beginning to write it") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "writer.lock";
  const int asking = open(file.c_str(), O_CREAT | O_RDONLY | O_CLOEXEC, 0666);
  REQUIRE(asking >= 0);
  REQUIRE(flock(asking, LOCK_SH | LOCK_NB) == 0);  // as has_writer() for a moment
  std::thread done([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    close(asking);
  });
  CHECK_NOTHROW(WriterLock(folder.path(), WriterLock::Of::kNewTrace));
  done.join();
  CHECK_FALSE(has_writer(folder.path()));
}

TEST_CASE("A recorder that was killed holds its trace no longer, nor does a program that it had started") {
  const TemporaryFolder folder;
  const fs::path trace = folder.path() / "run.kvt";
  const int status = in_child([&] {
    const TraceManifest m = small_manifest();
    TraceWriter writer(trace, m, 1);
    small_step(writer, m, 0);
    if (std::system(("sleep 30 & echo $! >" + folder.file("started")).c_str()) != 0) _exit(1);
    kill(getpid(), SIGKILL);
  });
  REQUIRE(status == 128 + SIGKILL);
  const auto started = static_cast<pid_t>(std::stol(slurp(folder.path() / "started")));
  REQUIRE(kill(started, 0) == 0);
  CHECK(refusal(trace).empty());
  CHECK(kill(started, SIGKILL) == 0);
}

TEST_CASE("Of recorders that begin a trace of one name at the same time one writes it, and the others are refused") {
  constexpr std::size_t kRecorders = 6;
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    const fs::path trace = folder.path() / "run.kvt";
    std::array<int, 2> start{};
    REQUIRE(pipe(start.data()) == 0);
    std::vector<pid_t> children;
    for (std::size_t i = 0; i < kRecorders; ++i) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      close(start[1]);
      char end = 0;
      if (read(start[0], &end, 1) != 0) _exit(1);  // until all are there
      try {
        write_small_trace(trace);
      } catch (const Error&) {
        _exit(kThrew);
      }
      _exit(0);
    }
    close(start[0]);
    close(start[1]);
    std::size_t wrote = 0, refused = 0;
    for (const pid_t child : children) {
      int ended = 0;
      REQUIRE(waitpid(child, &ended, 0) == child);
      if (ended == 0) ++wrote;
      if (WIFEXITED(ended) && WEXITSTATUS(ended) == kThrew) ++refused;
    }
    CHECK(wrote == 1);
    CHECK(refused == kRecorders - 1);
    CHECK(inspect_trace(trace, true).intact);
    CHECK(TraceReader::open(trace).steps().size() == kSmallSteps);
  }
}
