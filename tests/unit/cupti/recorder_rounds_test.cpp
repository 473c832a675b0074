// What the recorder's thread does every so often: it reads the device's clocks.
#include <chrono>
#include <thread>

#include "kernels/cupti/activity_recorder.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cupti/activity_bytes.hpp"
#include "tests/unit/cupti/made_cupti.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

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
