// Calibration of this host: what its memory and cores can do, and what share of it the fast back end reaches.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/core/dtype.hpp"

namespace kvroof {

// Work per second of the best run, and how much longer the run took that a quarter of the others beat, relative to it.
struct Measured {
  double rate = 0;
  double spread = 0;
};

struct ThreadSample {
  unsigned threads = 0;
  Measured read;           // of uncached memory, bytes/s
  double barrier_seconds;  // an empty parallel loop
};

struct SizeSample {
  std::uint64_t bytes = 0;
  Measured read;  // by all threads, bytes/s
};

struct ProductSample {
  DType type = DType::kF32;
  Measured weights;  // bytes/s of an uncached matrix-vector product
};

// Seconds of the same work in turns through the whole calibration.
struct Turns {
  double seconds = 0;  // the median turn's
  double spread = 0;   // to the fastest and the slowest turn, whichever is farther, relative to the median
};

struct SetSample {
  std::uint64_t bytes = 0;  // that products or calls of attention read over and over
  Measured product;         // of bf16 weights, bytes/s without their starts
  Measured attention;       // of rows of k and v, bf16
};

struct CpuCalibration {
  unsigned threads = 0;
  std::uint64_t cache_bytes = 0;     // all caches of the last level
  std::uint64_t uncached_bytes = 0;  // of each buffer
  std::vector<ThreadSample> by_threads;  // 1, 2, 4, … and `threads`
  std::vector<SizeSample> by_size;       // ascending
  Measured read;                         // by all threads, bytes/s: the best seen
  Measured paired_read;                  // bytes/s in turn with products and attention: the limit of both
  Measured copy;                         // bytes/s, read and written
  std::array<ProductSample, 3> products;
  std::vector<SetSample> by_working_set;  // ascending
  Measured attention;                    // bytes/s of k and v (bf16) in a decode step
  double linear_start_seconds = 0;  // a product of almost nothing, cut for all threads, at its best
  // What waits for all threads swings with the machine more than reading does, so starts are measured in turns too.
  Turns small_linear_start;  // the mean product of a small model's layer, without its reading
  Turns attention_start;     // attention over one slot
  Turns elementwise;         // norms, rotation, activation and residuals of a layer of 2,048
  Measured multiply_add;                 // flop/s in registers, all threads: the limit of matmul
  Measured matmul;                       // flop/s of a product with 512 tokens, float
};

// Measures for a few seconds on a quiet machine and for less than a minute on a busy one: what is compared runs in
// turn, in windows of milliseconds, of which the best counts. `progress(done, total)` is called between the parts.
// Throws Error when a share above 100 % of its limit comes out after all that: the machine was too busy to be measured.
CpuCalibration calibrate_cpu(unsigned threads, const std::function<void(unsigned, unsigned)>& progress);

// Throws that Error when `rate` exceeds `limit` by more than 2 %, which the best runs of equal work differ by; `what`
// and `of` name them.
void refuse_above_limit(const char* what, double rate, const char* of, double limit);

}  // namespace kvroof
