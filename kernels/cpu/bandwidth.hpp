// Memory bandwidth of this host, measured: the limit that the engine's speed is compared with.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>

#include "kernels/engine/weight.hpp"
#include "sim/core/thread_pool.hpp"

namespace kvroof {

// The shortest of several runs of the same work: what others do on the machine only ever adds.
class BestTime {
 public:
  template <class Body>
  void run(const Body& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds_ = std::min(seconds_, took.count());
  }
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  double seconds_ = std::numeric_limits<double>::infinity();
};

// Bytes of all caches of the last level together, as the kernel reports them; 32 MiB where it says nothing.
std::uint64_t last_level_cache_bytes();

// Bytes that no cache holds: four times the last level, at least 256 MiB.
std::uint64_t uncached_bytes();

// A buffer that a team of threads reads or copies in blocks; each thread first touches what it is the first to fill.
class MemoryProbe {
 public:
  MemoryProbe(unsigned threads, std::uint64_t bytes);

  [[nodiscard]] std::uint64_t bytes() const { return buffer_.size(); }
  [[nodiscard]] const std::byte* data() const { return buffer_.data(); }
  // Reads everything once; returns the sum of all words, so that no read can be left out.
  std::uint64_t read();
  // Copies the lower half to the upper with stores that bypass the caches: reads and writes half of bytes() each.
  void copy();

 private:
  void for_blocks(std::uint64_t bytes, const std::function<void(std::uint64_t first, std::uint64_t count)>& body);

  ThreadPool pool_;
  AlignedBytes buffer_;
};

// Bytes per second of a read of uncached_bytes() by so many threads: the best of the passes that fit in a fifth of a
// second, and of three at least.
double measure_read_bandwidth(unsigned threads);

}  // namespace kvroof
