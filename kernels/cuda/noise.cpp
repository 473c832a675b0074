#include "kernels/cuda/noise.hpp"

#include "kernels/cuda/noise_launch.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

bool cuda_device_available() { return cuda::device_available(); }

void gumbel_noise_on_device(std::span<const NoiseKey> keys, std::span<float> noise) {
  check(keys.size() == noise.size(), "a number for each key");
  if (const char* why = cuda::gumbel_noise(keys.data(), keys.size(), noise.data())) {
    throw Error(fmt::format("CUDA could not make the noise of {} keys: {}", keys.size(), why));
  }
}

}  // namespace kvroof
