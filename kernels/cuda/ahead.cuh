// Fetches for the launches to come.
#pragma once

#include "kernels/cuda/arguments.hpp"
#include "kernels/cuda/device.cuh"

namespace kvroof::cuda {

// By all threads of the launch together, a line of 128 bytes each.
KV_DEVICE void fetch_ahead(const Ahead& ahead) {
  const std::size_t block = std::size_t{block_y()} * blocks_x() + block_x();
  const std::size_t threads = std::size_t{blocks_x()} * blocks_y() * threads_x();
  KV_UNROLL_BY(1)
  for (std::size_t at = (block * threads_x() + thread_x()) * 128; at < ahead.bytes; at += threads * 128) {
    prefetch(ahead.data + at);
  }
}

}  // namespace kvroof::cuda
