// Memory bandwidth of this host, measured: the limit that the engine's speed is compared with.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
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
    add(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  void add(double seconds) { seconds_.push_back(seconds); }
  // The shortest run: what others do on the machine only ever adds. At least one run.
  [[nodiscard]] double best() const;
  // How much longer than the shortest the run took that a quarter of the others beat, relative to it: on a busy machine
  // most runs are disturbed and say nothing about the work.
  [[nodiscard]] double spread() const;
  [[nodiscard]] std::size_t runs() const { return seconds_.size(); }

 private:
  std::vector<double> seconds_;
};

// Bytes of all caches of the last level together, as the kernel reports them; 32 MiB where it says nothing.
std::uint64_t last_level_cache_bytes();

// Bytes that no cache holds: four times the last level, at least 256 MiB.
std::uint64_t uncached_bytes();

// The part of such a buffer that one run of a measurement walks, in turn: long beside the start of a parallel loop, and
// so short (milliseconds) that some runs are disturbed by nothing else even on a busy machine. Divides uncached_bytes()
// but for a rest.
std::uint64_t window_bytes(unsigned threads);

// A buffer that a team of threads reads or copies in blocks of 256 KiB, or one smaller block for each thread.
class MemoryProbe {
 public:
  MemoryProbe(unsigned threads, std::uint64_t bytes);

  // Reads every block once, a smaller one until 1 MiB has been read; returns the sum of all words, so that no read can
  // be left out.
  std::uint64_t read();
  [[nodiscard]] std::uint64_t bytes_read() const { return buffer_.size() * repeats_; }
  // Reads the next `bytes` of a buffer of at least as many, from its start again when too few are left.
  std::uint64_t read_next(std::uint64_t bytes);
  // Drops every line of the buffer from all caches, so that the next read of it comes from memory, however small it is.
  // Only where can_flush().
  void flush();
  [[nodiscard]] static bool can_flush();
  // Copies the lower half to the upper with stores that bypass the caches.
  void copy();
  [[nodiscard]] std::uint64_t bytes_copied() const { return buffer_.size() / 2 / 64 * 64 * 2; }  // read and written

 private:
  void for_blocks(std::uint64_t bytes, const std::function<void(std::uint64_t first, std::uint64_t count)>& body);
  std::uint64_t read_at(std::uint64_t from, std::uint64_t bytes, std::uint64_t repeats);

  ThreadPool pool_;
  AlignedBytes buffer_;
  std::uint64_t block_ = 0;
  std::uint64_t repeats_ = 1;
  std::uint64_t next_ = 0;
};

// Bytes of the buffer that measure_read_bandwidth() takes: where caches can be flushed no more than one run reads,
// 16 MiB, or 8 MiB for each of more than two threads, up to 256 MiB; elsewhere what no cache holds.
std::uint64_t bandwidth_buffer_bytes(unsigned threads);

// Bytes per second at which so many threads read uncached memory: the best of the runs that fit in so many seconds, and
// of one pass over its buffer at least. Nothing where there is no memory or thread to be had for it.
std::optional<double> measure_read_bandwidth(unsigned threads, double seconds);

}  // namespace kvroof
