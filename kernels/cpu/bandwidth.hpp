// Memory bandwidth of this host, measured: the limit that the engine's speed is compared with.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/engine/weight.hpp"
#include "sim/core/thread_pool.hpp"

namespace kvroof {

// Wall times of several runs of the same work.
class Timing {
 public:
  template <class Body>
  void run(const Body& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  // The shortest run: what others do on the machine only ever adds. At least one run.
  [[nodiscard]] double best() const;
  // How much longer the median run took than the shortest, relative to it.
  [[nodiscard]] double spread() const;

 private:
  std::vector<double> seconds_;
};

// Bytes of all caches of the last level together, as the kernel reports them; 32 MiB where it says nothing.
std::uint64_t last_level_cache_bytes();

// Bytes that no cache holds: four times the last level, at least 256 MiB.
std::uint64_t uncached_bytes();

// A buffer that a team of threads reads or copies in blocks of 1 MiB, or one smaller block for each thread.
class MemoryProbe {
 public:
  MemoryProbe(unsigned threads, std::uint64_t bytes);

  // Reads every block once, a smaller one until 1 MiB has been read; returns the sum of all words, so that no read can
  // be left out.
  std::uint64_t read();
  [[nodiscard]] std::uint64_t bytes_read() const { return buffer_.size() * repeats_; }
  // Copies the lower half to the upper with stores that bypass the caches.
  void copy();
  [[nodiscard]] std::uint64_t bytes_copied() const { return buffer_.size() / 2 / 64 * 64 * 2; }  // read and written

 private:
  void for_blocks(std::uint64_t bytes, const std::function<void(std::uint64_t first, std::uint64_t count)>& body);

  ThreadPool pool_;
  AlignedBytes buffer_;
  std::uint64_t block_ = 0;
  std::uint64_t repeats_ = 1;
};

// Bytes per second of a read of uncached_bytes() by so many threads: the best of the passes that fit in a fifth of a
// second, and of three at least.
double measure_read_bandwidth(unsigned threads);

}  // namespace kvroof
