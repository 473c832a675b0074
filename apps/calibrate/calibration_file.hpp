// What calibrations of all kinds share: the date, and the device file with its version.
#pragma once

#include <string>

#include "sim/device/device.hpp"

namespace kvroof {

std::string today();  // YYYY-MM-DD, UTC

// The file of a calibrated device. Throws Error where the measurements make no device that could be read again.
std::string calibration_file(const Device& device);


}  // namespace kvroof
