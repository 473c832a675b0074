// Devices that an engine has no kernels for.
#pragma once

#include <string>
#include <vector>

#include "apps/prediction/workload.hpp"

namespace kvroof {

// Throws Error (usage) for a device that the request's engine does not run on, by its vendor.
void check_runs_on(const WorkloadRequest& request, const Device& device);

// Takes such devices out; their names.
std::vector<std::string> take_out_foreign(const WorkloadRequest& request, std::vector<Device>& devices);

}  // namespace kvroof
