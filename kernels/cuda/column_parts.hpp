// Blocks that share the columns of a product's rows: how many do, and the memory in which they leave their sums.
#pragma once

#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/launches.hpp"

namespace kvroof::cuda {

// How many blocks share the columns of each kPartRows rows of a matrix, so that about two for each multiprocessor have
// work, of two tiles of kPartColumns columns each at least.
std::uint32_t column_parts(std::uint32_t rows, std::uint32_t cols, unsigned multiprocessors);

class ColumnParts {
 public:
  ColumnParts(Stream& stream, unsigned multiprocessors) : stream_(stream), multiprocessors_(multiprocessors) {}

  // Products with this many vectors: fewer have warps that share columns, more are one tile of several.
  [[nodiscard]] static bool serves(std::uint32_t tokens) { return tokens > 16 && tokens <= kPartTokens; }
  // Makes room, once; before it no product is cut. Throws OutOfDeviceMemory.
  void reserve();
  // Sets what blocks share of a product whose norm, if any, can wait until its columns are added up: RMS in bf16.
  void cut(Stored weights, LinearArguments& a) const;
  [[nodiscard]] std::uint64_t bytes() const { return sums_.bytes() + finished_.bytes(); }

 private:
  Stream& stream_;
  unsigned multiprocessors_;
  DeviceBuffer sums_, finished_;
};

}  // namespace kvroof::cuda
