// Gumbel noise of the policies made on a GPU: the same function as on the host, hence the same bits.
#pragma once

#include <span>

#include "sim/core/gumbel.hpp"

namespace kvroof {

// Whether this machine has a CUDA device that this build has code for and a driver that runs it.
bool cuda_device_available();

// noise[i] = gumbel_draw(keys[i]), computed on the current CUDA device; sizes equal. Throws Error when CUDA refuses.
void gumbel_noise_on_device(std::span<const NoiseKey> keys, std::span<float> noise);

}  // namespace kvroof
