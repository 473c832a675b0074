// The launch of a kernel on a GPU, or on the emulator of the tests.
#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kernels.hpp"

namespace kvroof::cuda {

struct Grid {
  unsigned x = 1, y = 1;
};

#if defined(__CUDACC__)
// A kernel's own shared memory beyond what its text declares is asked for, and that a multiprocessor has enough of it
// for as many blocks as fit.
template <class Arguments>
cudaError_t allow_shared(void (*kernel)(Arguments), unsigned bytes) {
  if (bytes == 0) return cudaSuccess;
  const auto allow = [=](cudaFuncAttribute what, int value) { return cudaFuncSetAttribute(kernel, what, value); };
  const cudaError_t status = allow(cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  return status != cudaSuccess ? status : allow(cudaFuncAttributePreferredSharedMemoryCarveout, 100);
}
#endif

// The kernel may be made ready while the launch before it still runs: it begins with await_previous(). `shared`: bytes
// of its KV_SHARED_OF_LAUNCH.
template <class Arguments>
void launch(Stream& stream, void (*kernel)(Arguments), Grid grid, unsigned threads, const Arguments& arguments,
            unsigned shared = 0) {
  if (stream.problem != nullptr || grid.x == 0 || grid.y == 0) return;
#if defined(__CUDACC__)
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.x, grid.y);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  config.attrs = &overlap;
  config.numAttrs = stream.overlaps && !stream.watched ? 1 : 0;
  cudaError_t status = allow_shared(kernel, shared);
  if (status == cudaSuccess) status = cudaLaunchKernelEx(&config, kernel, arguments);
  if (status != cudaSuccess) {
    stream.problem = cudaGetErrorString(status);
    cudaGetLastError();  // it is told once
  }
#else
  static_cast<void>(shared);
  emulator::submit(stream, [=] {
    emulator::run({grid.x, grid.y}, {threads}, [&] {
      kernel(arguments);
      emulator::check_awaited();
    });
  });
#endif
}

// Blocks of a kernel that a multiprocessor of the current device holds at once.
template <class Arguments>
unsigned resident_blocks(void (*kernel)(Arguments), unsigned threads, unsigned shared = 0) {
#if defined(__CUDACC__)
  int blocks = 0;
  cudaError_t status = allow_shared(kernel, shared);
  if (status == cudaSuccess) {
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), shared);
  }
  if (status != cudaSuccess) cudaGetLastError();  // the launch itself will say why
  return blocks > 0 ? static_cast<unsigned>(blocks) : 1;
#else
  static_cast<void>(kernel);
  static_cast<void>(shared);
  return 512 / threads;
#endif
}

}  // namespace kvroof::cuda
