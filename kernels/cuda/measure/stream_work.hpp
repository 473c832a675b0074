// Plain reads, copies and fills of memory in windows of an arena, to be timed: the limit that kernels are held against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/measure/cold_memory.hpp"
#include "kernels/cuda/measure/timing.hpp"

namespace kvroof::cuda {

enum class StreamKind : std::uint8_t { kCopy, kDriverCopy, kRead, kFill };
const char* name_of(StreamKind kind);
// Bytes that move for each byte of the window: a copy reads and writes.
double factor_of(StreamKind kind);

class Streams {
 public:
  // Two buffers of `arena` bytes.
  Streams(std::size_t arena, const CardFacts& card);

  // Of one window of `bytes`, which walks over the arena. Throws Error when the device refuses.
  Measured time(StreamKind kind, std::size_t bytes, double seconds);
  [[nodiscard]] std::size_t arena() const { return from_.bytes(); }

 private:
  void launch(StreamKind kind, unsigned window, std::size_t bytes);

  OpenStream open_;
  CardFacts card_;
  DeviceBuffer from_, to_, sink_;
};

}  // namespace kvroof::cuda
