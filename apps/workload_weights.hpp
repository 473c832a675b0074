// The types of weights that a workload is asked about.
#pragma once

#include <vector>

#include "apps/workload.hpp"

namespace kvroof {

// Those of --dtype, else the model's own, of which the request is told: engines keep weights as a checkpoint is stored,
// and kvroof's own runs all of them in 16 bits. The request has its model and engine. Throws Error (usage) with "did
// you mean".
std::vector<WeightFormat> weight_formats_of(const Arguments& arguments, WorkloadRequest& request);

}  // namespace kvroof
