// What blocks of a product have from each other: norms of its vectors, which one launch makes for all of them, and
// where several share columns (split-K) their partial sums.
#pragma once

#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/launches.hpp"

namespace kvroof::cuda {

// How many blocks share the columns of each kSplitRows rows of a matrix, so that about two for each multiprocessor have
// work, of two tiles of kSplitColumns columns each at least.
std::uint32_t k_splits(std::uint32_t rows, std::uint32_t cols, unsigned multiprocessors);

class SplitKMemory {
 public:
  // Throws OutOfDeviceMemory.
  SplitKMemory(Stream& stream, unsigned multiprocessors);

  // Products with this many vectors: fewer have warps that share columns, more are one tile of several.
  [[nodiscard]] static bool serves(std::uint32_t tokens) { return tokens > kSmallTile && tokens <= kLargeTile; }
  // Makes room, once; before it no product is cut. Throws OutOfDeviceMemory.
  void reserve();
  // Sets where norms of a product's vectors are made, unless it is one, or they can wait until its columns are added up
  // (RMS in bf16); and what blocks share of its columns.
  void cut(Stored weights, LinearArguments& a) const;
  [[nodiscard]] std::uint64_t bytes() const { return norms_.bytes() + sums_.bytes() + finished_.bytes(); }

 private:
  Stream& stream_;
  unsigned multiprocessors_;
  DeviceBuffer norms_, sums_, finished_;
};

}  // namespace kvroof::cuda
