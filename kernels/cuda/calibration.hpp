// Calibration of the CUDA device: what its memory gives, and what the back end's kernels take on data that no cache
// holds. A build without CUDA has the same functions: there is no device then.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kvroof {

// A plain read or copy of a window of memory.
struct CudaStream {
  std::string kind;
  std::uint64_t bytes = 0;  // of the window
  double rate = 0;          // bytes/s, read and written, of the median run
  double spread = 0;        // half of the middle half's width, relative
};

// One kernel of the back end: median seconds of a launch among others of its kind, in a graph.
struct CudaSample {
  bool attention = false;  // else a matrix product
  std::string what;        // its shape, for people
  double bytes = 0;        // of weights or of the cache
  double flops = 0;
  double seconds = 0;
};

// The device that is measured. What the driver does not tell is 0.
struct CudaBoard {
  std::string name;  // as its driver calls it
  unsigned multiprocessors = 0;
  std::uint64_t total_bytes = 0;
};

struct CudaCalibration {
  std::string device;  // the board's name
  int driver = 0;      // the CUDA version that it supports, 13.0 as 13000
  int sm_clock_khz = 0, memory_clock_khz = 0;  // the highest
  std::string library;     // that served products of more vectors than our own kernels take; empty: none did
  std::string no_library;  // why not, or why not for all of them
  double empty_kernel_seconds = 0;  // a launch in a train of kernels that move nothing
  std::vector<CudaStream> streams;
  std::vector<CudaSample> samples;
  unsigned cut = 0;  // measurements that time or memory did not suffice for
};

// Why no device can be measured: cuda_device_problem(). Measures in a fixed order, for less than a minute; what has not
// begun after 50 s is cut. `progress(done, total)` is called between the measurements. Throws Error when the device
// refuses, or when there is none.
CudaCalibration calibrate_cuda(const std::function<void(unsigned, unsigned)>& progress);
// What calibrate_cuda() would measure.
CudaBoard cuda_board();

}  // namespace kvroof
