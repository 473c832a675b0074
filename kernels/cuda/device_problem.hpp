// Why a device cannot be used, in words that say what to do about it.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cuda/kernels.hpp"

namespace kvroof::cuda {

// One sentence on what find_device met; `why` is what it returned. Tells a missing driver, one that is too old, a
// machine without a GPU and a GPU that this program has no code for apart.
std::string device_problem(const DeviceFacts& facts, std::string_view why);

}  // namespace kvroof::cuda
