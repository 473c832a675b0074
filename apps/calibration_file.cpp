#include "apps/calibration_file.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "apps/command.hpp"
#include "sim/device/calibration_version.hpp"

namespace kvroof {

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

std::string calibration_file(const Device& device) {
  std::string file = fmt::format("calibration: {}\n", kCalibrationVersion) + device_to_yaml(device);
  (void)device_from_yaml(file).or_throw("calibrate: the measurements make no valid device");
  return file;
}

void require_writable(const std::string& path) {
  std::error_code ignored;
  const std::string temporary = temporary_name(path);
  int reason = std::filesystem::is_directory(path, ignored) ? EISDIR : 0;
  if (temporary != path) {  // a pipe is not opened twice
    std::FILE* const file = std::fopen(temporary.c_str(), "wb");
    if (file == nullptr) {
      reason = errno;
    } else {
      std::fclose(file);
      std::remove(temporary.c_str());
    }
  }
  if (reason != 0) throw Error(fmt::format("{}: cannot be written: {}", path, std::strerror(reason)));
}

}  // namespace kvroof
