// kvroof calibrate --backend cuda: facts of this machine's GPU from what kvroof's own kernels take on it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/calibration_fit.hpp"
#include "kernels/cuda/calibration.hpp"

namespace kvroof {

// The device that is to be calibrated: `base` (a name or a file), or what the catalog calls `gpu`. Throws Error (usage)
// where neither is known, or where `base` is another device than `gpu` by its name, multiprocessors or memory.
Device calibrated_device(const CudaBoard& gpu, const std::optional<std::string>& base);

// Sets what the samples determine. Throws Error where a stream or a kernel is faster than the device can be.
std::vector<KernelFit> fit_calibration(Device& device, const CudaCalibration& measured);

// The measurements behind the facts: comments of a device file, and keys of JSON.
std::string cuda_curves(const CudaCalibration& measured, const Device& device);
void add_cuda_curves(nlohmann::ordered_json& json, const CudaCalibration& measured);

}  // namespace kvroof
