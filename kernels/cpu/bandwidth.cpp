#include "kernels/cpu/bandwidth.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/engine/weight.hpp"
#include "sim/core/thread_pool.hpp"

namespace kvroof {
namespace {

constexpr std::size_t kWords = std::size_t{16} << 20;  // 128 MiB
constexpr double kSeconds = 0.15;                      // of passes; touching the array takes as long again

// Eight sums, so that a pass waits for memory and not for additions.
std::uint64_t sum_words(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double measure_read_bandwidth(unsigned threads) {
  using Clock = std::chrono::steady_clock;
  AlignedBytes memory(kWords * sizeof(std::uint64_t));
  auto* words = reinterpret_cast<std::uint64_t*>(memory.data());
  ThreadPool pool(threads);
  const std::size_t slice = kWords / threads;
  // Each thread of a multi-socket host reads what it touched first.
  pool.parallel_for(threads, [&](std::size_t t) { std::fill_n(words + t * slice, slice, t + 1); });
  std::vector<std::uint64_t> sums(threads);
  double best = 0;
  const auto start = Clock::now();
  for (auto at = start; std::chrono::duration<double>(at - start).count() < kSeconds;) {
    pool.parallel_for(threads, [&](std::size_t t) { sums[t] += sum_words(words + t * slice, slice); });
    const auto now = Clock::now();
    best = std::max(best, static_cast<double>(slice * threads * sizeof(std::uint64_t)) /
                              std::chrono::duration<double>(now - at).count());
    at = now;
  }
  volatile std::uint64_t used = sums[0];  // the sums must not be optimised away
  static_cast<void>(used);
  return best;
}

}  // namespace kvroof
