#include "apps/calibrate/calibration_file.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "apps/cli/command.hpp"
#include "sim/device/calibration_version.hpp"

namespace kvroof {

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

std::string calibration_file(const Device& device) {
  std::string file = fmt::format("calibration: {}\n", kCalibrationVersion) + device_to_yaml(device);
  (void)device_from_yaml(file).or_throw("calibrate: the measurements make no valid device");
  return file;
}

}  // namespace kvroof
