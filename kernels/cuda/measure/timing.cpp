#include "kernels/cuda/measure/timing.hpp"

#include <algorithm>
#include <chrono>

#include "sim/core/error.hpp"

namespace kvroof::cuda {

TimedWork::TimedWork(Stream& stream, unsigned repetitions, const std::function<void(unsigned)>& work, double bytes)
    : stream_(stream), repetitions_(repetitions), bytes_(bytes), emulated_(card_facts().emulated) {
  work(0);
  check_device(stream.problem, "launching what is measured");
  check_device(synchronize(stream), "launching what is measured");
  const bool captured = graph_.capture(stream, [&] {
    for (unsigned i = 0; i < repetitions; ++i) work(i);
  });
  check_device(captured ? stream.problem : kNoMemory.data(), "capturing what is measured");
}

double TimedWork::run() {
  double seconds = 0;
  // Keeps the device busy until the host has asked for what is timed: its first event would be over long before the
  // graph begins.
  if (!emulated_) graph_.run(stream_);
  check_device(time_launches(stream_, [&] { graph_.run(stream_); }, seconds), "measuring");
  if (emulated_ && bytes_ > 0) return kEmulatedStartSeconds + bytes_ / kEmulatedBytesPerSecond;
  return seconds / repetitions_;
}

Measured measured(std::vector<double>& seconds) {
  std::sort(seconds.begin(), seconds.end());
  const std::size_t n = seconds.size();
  if (n == 0) return {};
  const double median = n % 2 == 1 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
  const double width = seconds[std::min(n - 1, n * 3 / 4)] - seconds[n / 4];
  return {seconds[0], median, median > 0 ? width / 2 / median : 0, static_cast<unsigned>(n)};
}

Measured measure(const std::function<double()>& run, double seconds, unsigned most_runs) {
  using Clock = std::chrono::steady_clock;
  constexpr double kSteady = 0.01;
  run();
  std::vector<double> times;
  const auto start = Clock::now();
  const auto gone = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (;;) {
    times.push_back(run());
    if (times.size() >= most_runs) break;
    if (times.size() >= 3 && gone() > 4 * seconds) break;  // far longer than was planned: what there is must do
    if (times.size() < kLeastRuns) continue;
    std::vector<double> sorted = times;
    if (measured(sorted).spread < kSteady || gone() > seconds) break;
  }
  return measured(times);
}

Measured measure(TimedWork& work, double seconds) {
  return measure([&] { return work.run(); }, seconds);
}

unsigned repetitions_for(std::size_t bytes, const CardFacts& card) {
  if (card.emulated) return 2;
  constexpr double kMillisecond = 4e9;  // bytes that a fast card moves in it
  return static_cast<unsigned>(std::clamp(kMillisecond / static_cast<double>(bytes + 1), 2.0, 200.0));
}

}  // namespace kvroof::cuda
