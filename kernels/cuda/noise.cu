#include "kernels/cuda/noise_launch.hpp"

namespace kvroof::cuda {
namespace {

// One thread a key; reads sizeof(NoiseKey) and writes 4 bytes each.
__global__ void gumbel_noise_kernel(const NoiseKey* keys, std::size_t count, float* noise) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) noise[i] = gumbel_draw(keys[i]);
}

// Memory on the device, freed at the end; null after a refusal.
template <class T>
struct DeviceArray {
  T* data = nullptr;
  cudaError_t status;

  explicit DeviceArray(std::size_t count) : status(cudaMalloc(&data, count * sizeof(T))) {}
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
};

cudaError_t make_noise(const NoiseKey* keys, std::size_t count, float* noise) {
  const DeviceArray<NoiseKey> device_keys(count);
  if (device_keys.status != cudaSuccess) return device_keys.status;
  const DeviceArray<float> device_noise(count);
  if (device_noise.status != cudaSuccess) return device_noise.status;
  const cudaError_t copied = cudaMemcpy(device_keys.data, keys, count * sizeof(NoiseKey), cudaMemcpyHostToDevice);
  if (copied != cudaSuccess) return copied;
  constexpr unsigned kBlock = 256;
  const auto blocks = static_cast<unsigned>((count + kBlock - 1) / kBlock);
  cudaGetLastError();  // an earlier call's refusal is not this launch's
  gumbel_noise_kernel<<<blocks, kBlock>>>(device_keys.data, count, device_noise.data);
  const cudaError_t launched = cudaGetLastError();
  if (launched != cudaSuccess) return launched;
  return cudaMemcpy(noise, device_noise.data, count * sizeof(float), cudaMemcpyDeviceToHost);
}

}  // namespace

bool device_available() {
  int devices = 0;
  cudaFuncAttributes attributes;
  const bool available = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 &&
                         cudaFuncGetAttributes(&attributes, gumbel_noise_kernel) == cudaSuccess;
  cudaGetLastError();  // a missing driver must not fail a later call
  return available;
}

const char* gumbel_noise(const NoiseKey* keys, std::size_t count, float* noise) {
  if (count == 0) return nullptr;
  const cudaError_t status = make_noise(keys, count, noise);
  return status == cudaSuccess ? nullptr : cudaGetErrorString(status);
}

}  // namespace kvroof::cuda
