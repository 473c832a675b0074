// Times of repeated work: best and median, until they are steady or the time for them is over.
#pragma once

#include <functional>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/measure/bench_device.hpp"

namespace kvroof::cuda {

// A few kernels launched again and again as one CUDA graph; they copy nothing from or to the host.
class TimedWork {
 public:
  // Makes work(0) once, for code to be loaded and memory to be made; then notes work(0) … work(repetitions − 1), all
  // launched on `stream`. `bytes`: that one repetition moves; the emulator makes its time of them, where they are
  // known. Throws Error when the device refuses, and what the work throws.
  TimedWork(Stream& stream, unsigned repetitions, const std::function<void(unsigned)>& work, double bytes = 0);

  // Runs all repetitions, untimed and then timed; the device's seconds of one. Throws Error when the device refuses.
  double run();

 private:
  Stream& stream_;
  unsigned repetitions_;
  double bytes_;
  bool emulated_;
  LaunchGraph graph_;
};

struct Measured {
  double best = 0;  // seconds of one repetition
  double median = 0;
  double spread = 0;  // half of the middle half's width, relative to the median
  unsigned runs = 0;
};

// The statistics of a list of seconds; `seconds` is sorted.
Measured measured(std::vector<double>& seconds);

// One run that does not count, then at least kLeastRuns, then more until the middle half of the runs lies within 1 % of
// the median, or `seconds` are over, or there were `most_runs`. Throws Error when the device refuses.
inline constexpr unsigned kLeastRuns = 7;
Measured measure(const std::function<double()>& run, double seconds, unsigned most_runs = 2000);
Measured measure(TimedWork& work, double seconds);

// Repetitions in one graph: about a millisecond of work at so many bytes, so that the events weigh nothing.
unsigned repetitions_for(std::size_t bytes, const CardFacts& card);

}  // namespace kvroof::cuda
