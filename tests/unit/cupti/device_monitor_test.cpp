// Clocks and power from a made NVML.
#include "kernels/cupti/device_monitor.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "tests/catch.hpp"
#include "tests/unit/cupti/machine.hpp"

using namespace kvroof;
using namespace kvroof::test;

namespace {

constexpr const char* kBus = "0000:07:00.0";

// A machine whose driver lies where Debian has it, which CUPTI does not look at.
class MachineWithNvml : public MadeMachine {
 public:
  MachineWithNvml() {
    file(kPlace);
    std::filesystem::copy(KVROOF_MADE_NVML, below(machine, kPlace), std::filesystem::copy_options::overwrite_existing);
  }
  static constexpr const char* kPlace = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1";
};

}  // namespace

TEST_CASE("The device at an address of the bus tells its clocks and power, what it does not tell is 0") {
  const MachineWithNvml made;
  {
    auto opened = open_device_monitor(made.machine, kBus);
    REQUIRE(opened.ok());
    const EnvironmentRecord first = opened.value()->read(), second = opened.value()->read();
    CHECK((first.device == 0 && first.sm_clock_mhz == 1980 && first.memory_clock_mhz == 3201));
    CHECK(second.power_mw == first.power_mw + 1000);
    CHECK(first.temperature_c == 0);  // the answer was that it is not known
    CHECK((first.time_ns > 0 && second.time_ns >= first.time_ns));
  }
  void* const library = dlopen(below(made.machine, MachineWithNvml::kPlace).c_str(), RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  CHECK(reinterpret_cast<int (*)()>(dlsym(library, "made_nvml_begun"))() == 0);  // what was begun has been ended
}

TEST_CASE("An NVML that is not here, has no such device or does not start is refused in one sentence") {
  const MadeMachine without;
  CHECK(open_device_monitor(without.machine, kBus).error().starts_with("libnvidia-ml.so.1 was not found"));
  const MachineWithNvml made;
  CHECK(open_device_monitor(made.machine, "0000:08:00.0").error() ==
        "NVML, looking for the device at 0000:08:00.0: made (6)");
  setenv("MADE_CUPTI", "nvml=9", 1);
  CHECK(open_device_monitor(made.machine, kBus).error() == "NVML, starting: made (9)");
  unsetenv("MADE_CUPTI");
  without.file(MachineWithNvml::kPlace, "no library");
  CHECK(open_device_monitor(without.machine, kBus).error().find("cannot be loaded") != std::string::npos);
}
