#include "kernels/cuda/measure/timing.hpp"

#include <algorithm>
#include <chrono>

#include "sim/core/error.hpp"

namespace kvroof::cuda {

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
  const Measured result = measure([&] { return work.run(); }, seconds);
  if (work.problem() != nullptr) throw Error(fmt::format("CUDA: {} while measuring", work.problem()));
  return result;
}

unsigned repetitions_for(std::size_t bytes, const CardFacts& card) {
  if (card.emulated) return 2;
  constexpr double kMillisecond = 4e9;  // bytes that a fast card moves in it
  return static_cast<unsigned>(std::clamp(kMillisecond / static_cast<double>(bytes + 1), 2.0, 200.0));
}

}  // namespace kvroof::cuda
