// Copies of large memory on the host by several threads: one of them moves some 10 GB/s, so that the logits of 64
// sequences over 128k tokens would take as long as the step that made them.
#pragma once

#include <cstddef>
#include <optional>

#include "sim/core/thread_pool.hpp"

namespace kvroof::cuda {

class HostCopy {
 public:
  // As std::memcpy. Threads are started for the first copy of at least kShared bytes.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes);

  static constexpr std::size_t kShared = std::size_t{4} << 20;
  static constexpr std::size_t kPiece = std::size_t{512} << 10;

 private:
  std::optional<ThreadPool> pool_;
};

}  // namespace kvroof::cuda
