// --device of the verbs that take several: "names of the catalog or files, separated by commas, or all".
#pragma once

#include <vector>

#include "apps/prediction/workload.hpp"

namespace kvroof {

inline constexpr const char* kDevicesHelp =
    "names of the catalog or files, separated by commas, or all: every GPU of the catalog; "
    "h200:bandwidth_gb_per_s=1.5x changes a fact";

// Of `all`, those that the request's engine does not run on are left out and noted in it; of others it is an error.
// Throws Error (usage).
std::vector<Device> asked_devices(const Arguments& arguments, WorkloadRequest& request);

}  // namespace kvroof
