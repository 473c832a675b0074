// What noise.cu gives to host code: plain types, because nvcc does not read the program's error and format headers.
#pragma once

#include <cstddef>

#include "sim/core/gumbel.hpp"

namespace kvroof::cuda {

bool device_available();

// Null, or why CUDA refused.
const char* gumbel_noise(const NoiseKey* keys, std::size_t count, float* noise);

}  // namespace kvroof::cuda
