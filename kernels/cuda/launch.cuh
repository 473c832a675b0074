// The launch of a kernel on a GPU, or on the emulator of the tests.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kernels.hpp"

#if !defined(__CUDACC__)
#include "kernels/cuda/emulated_queue.hpp"
#endif

namespace kvroof::cuda {

struct Grid {
  unsigned x = 1, y = 1;
};

// The kernel may be made ready while the launch before it still runs: see await_previous().
template <class Arguments>
void launch(Stream& stream, void (*kernel)(Arguments), Grid grid, unsigned threads, const Arguments& arguments) {
  if (stream.problem != nullptr || grid.x == 0 || grid.y == 0) return;
#if defined(__CUDACC__)
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.x, grid.y);
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = &overlap;
  config.numAttrs = stream.overlaps && !stream.one_by_one ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments);
  if (status == cudaSuccess) return;
  stream.problem = cudaGetErrorString(status);
  cudaGetLastError();  // it is told once
#else
  const auto thread = [=] {
    kernel(arguments);
    emulator::check_awaited();
  };
  emulator::submit(stream, {thread, {grid.x, grid.y}, {threads}, stream.overlaps && !stream.one_by_one});
#endif
}

// Blocks of a kernel that a multiprocessor of the current device holds at once.
template <class Arguments>
unsigned resident_blocks(void (*kernel)(Arguments), unsigned threads) {
#if defined(__CUDACC__)
  int blocks = 0;
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), 0) != cudaSuccess) {
    cudaGetLastError();  // the launch itself will say why
  }
  return blocks > 0 ? static_cast<unsigned>(blocks) : 1;
#else
  static_cast<void>(kernel);
  return 512 / threads;
#endif
}

}  // namespace kvroof::cuda
