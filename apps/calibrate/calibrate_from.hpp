// kvroof calibrate --from: facts of a device from tables of kernels and from recorded traces.
#pragma once

#include <string>
#include <vector>

#include "analysis/calibration_fit.hpp"
#include "apps/cli/command.hpp"

namespace kvroof {

// `base` with what the file says: a .csv of kernels (the columns of published.csv), or a trace. Throws Error (usage)
// where it is of another device, and what fit_kernels() and fit_steps() throw.
Device calibrated_from(const std::string& path, const std::string& base, std::vector<KernelFit>& fits);

}  // namespace kvroof
