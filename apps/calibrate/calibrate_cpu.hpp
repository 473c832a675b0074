// kvroof calibrate --backend cpu: a device of this host's processor from what was measured of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kernels/cpu/calibration.hpp"
#include "sim/device/device.hpp"

namespace kvroof {

Device cpu_device(const CpuCalibration& measured);

// The curves behind the facts: comments of the device file, for whoever wonders about a share, and keys of JSON.
std::string cpu_curves(const CpuCalibration& measured);
void add_cpu_curves(nlohmann::ordered_json& json, const CpuCalibration& measured);

}  // namespace kvroof
