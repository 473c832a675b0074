// What the recorder's thread does every so often: buffers that are not full, and the device's clocks; and what it
// leaves to the program.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cupti/activity_recorder.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cupti/activity_bytes.hpp"
#include "tests/unit/cupti/made_cupti.hpp"
#include "traces/null_sink.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

class CountingSink final : public NullSink {
 public:
  using NullSink::add;
  void add(const KernelRecord&) override { ++kernels; }
  std::atomic<std::size_t> kernels{0};
};

class MadeMonitor final : public DeviceMonitor {
 public:
  EnvironmentRecord read() override { return {++reads, 0, 1980, 3201, 90'000, 40}; }
  std::uint64_t reads = 0;
};

// A recorder that is asked for clocks, of a CUPTI that refuses them.
ActivityOptions with_monitor(MadeCupti& cupti, Result<std::unique_ptr<DeviceMonitor>> (*open)()) {
  cupti.refuse = "enable 20";
  ActivityOptions options;
  options.environment = true;
  options.open_monitor = open;
  options.monitor_ms = 2;
  return options;
}

}  // namespace

TEST_CASE("Clocks and power that CUPTI refuses come from the device itself, again and again, once at the end") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityRecorder recorder(cupti, sink, with_monitor(cupti, []() -> Result<std::unique_ptr<DeviceMonitor>> {
                              return std::unique_ptr<DeviceMonitor>(std::make_unique<MadeMonitor>());
                            }));
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(recorder.start().empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  cupti.launch(1, 100);
  recorder.stop();
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begun;
  CHECK(sink.kernels.size() == 1);
  REQUIRE(sink.environments.size() >= 3);
  CHECK(static_cast<double>(sink.environments.size()) <= passed.count() / 2 + 2);  // not more often than was asked
  for (std::size_t i = 0; i < sink.environments.size(); ++i) CHECK(sink.environments[i].time_ns == i + 1);
  CHECK(sink.environments[0].power_mw == 90'000);
  CHECK(sink.notes.at("clocks_by") == "NVML, every 2 ms");
  CHECK_FALSE(sink.notes.contains("not_recorded"));
}

TEST_CASE("Where neither CUPTI nor the device tells of clocks the trace says both reasons, and the rest is recorded") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityRecorder recorder(cupti, sink, with_monitor(cupti, []() -> Result<std::unique_ptr<DeviceMonitor>> {
                              return failure("there is no NVIDIA driver");
                            }));
  REQUIRE(recorder.start().empty());
  cupti.launch(1, 100);
  recorder.stop();
  CHECK(sink.kernels.size() == 1);
  CHECK(sink.environments.empty());
  CHECK(sink.notes.at("not_recorded") == "clocks and power (no; there is no NVIDIA driver)");
  CHECK_FALSE(sink.notes.contains("clocks_by"));
}

TEST_CASE("Buffers that are not full are asked for again and again, and no more once the recording has begun to end") {
  MadeCupti cupti;
  CountingSink sink;
  ActivityOptions options;
  options.flush_ms = 2;
  options.most_buffers = 2;  // each comes back before the next kernels
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  for (std::uint32_t i = 1; i <= 20; ++i) {
    cupti.launch(i, i * 100);
    const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (sink.kernels < i && std::chrono::steady_clock::now() < soon) std::this_thread::yield();
    REQUIRE(sink.kernels == i);
  }
  if (GENERATE(true, false)) {
    recorder.leave();
  } else {
    recorder.stop();
  }
  const auto words = cupti.asked();
  CHECK(std::count(words.begin(), words.end(), "hand over") >= 20);
  const auto end = std::find(words.begin(), words.end(), "flush");
  CHECK(std::count(end, words.end(), "hand over") == 0);
  CHECK(sink.kernels == 20);
}

TEST_CASE("The end of a recording waits for a flush that is under way, and asks CUPTI only then") {
  MadeCupti cupti;
  CountingSink sink;
  ActivityOptions options;
  options.flush_ms = 1;
  std::atomic<bool> inside{false}, ended{false};
  bool met = false;
  cupti.in_flush = [&] {
    if (inside.exchange(true)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    met = ended;
  };
  ActivityRecorder recorder(cupti, sink, options);
  REQUIRE(recorder.start().empty());
  while (!inside) std::this_thread::yield();
  cupti.at_end = [&] { ended = true; };
  recorder.leave();
  CHECK(ended);
  CHECK_FALSE(met);
}

namespace {

// Of each thread of this process, the signals that it blocks, as bits.
std::map<std::string, std::uint64_t> blocked_signals() {
  std::map<std::string, std::uint64_t> blocked;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) blocked[task.path().filename()] = std::stoull(line.substr(7), nullptr, 16);
    }
  }
  return blocked;
}

}  // namespace

// A server whose threads all block a signal, and that takes it where it waits for it, would end by it otherwise.
TEST_CASE("The recorder's thread takes no signal that another thread of the program could") {
  MadeCupti cupti;
  KeepingSink sink;
  ActivityRecorder recorder(cupti, sink, {});
  const auto before = blocked_signals();
  REQUIRE(recorder.start().empty());
  const auto bit = [](int signal) { return std::uint64_t{1} << (signal - 1); };
  // A thread begins with all signals blocked, and then takes its own mask: faults are never in it.
  std::vector<std::uint64_t> masks;
  for (int round = 0; round < 5000 && masks.empty(); ++round) {
    for (const auto& [thread, blocked] : blocked_signals()) {
      if (!before.contains(thread) && (blocked & bit(SIGSEGV)) == 0) masks.push_back(blocked);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(masks.size() == 1);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD, SIGUSR2, SIGXFSZ}) CHECK((masks[0] & bit(signal)) != 0);
  CHECK(blocked_signals().at(std::to_string(getpid())) == before.at(std::to_string(getpid())));
  recorder.stop();
}
