// The launch of a kernel on a GPU, or on the emulator of the tests.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kernels.hpp"

namespace kvroof::cuda {

struct Grid {
  unsigned x = 1, y = 1;
};

template <class Arguments>
void launch(Stream& stream, void (*kernel)(Arguments), Grid grid, unsigned threads, const Arguments& arguments) {
  if (stream.problem != nullptr || grid.x == 0 || grid.y == 0) return;
  ++stream.launches;
#if defined(__CUDACC__)
  kernel<<<dim3(grid.x, grid.y), threads, 0, static_cast<cudaStream_t>(stream.handle)>>>(arguments);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) stream.problem = cudaGetErrorString(status);
#else
  emulator::run({grid.x, grid.y}, {threads}, [&] { kernel(arguments); });
#endif
}

}  // namespace kvroof::cuda
