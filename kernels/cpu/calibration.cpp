#include "kernels/cpu/calibration.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include "kernels/cpu/bandwidth.hpp"
#include "kernels/cpu/calibration_work.hpp"
#include "kernels/cpu/fast_kernels.hpp"
#include "kernels/cpu/fast_ops.hpp"
#include "kernels/cpu/working_sets.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr int kRounds = 64;                   // of a measurement: runs of a few milliseconds
constexpr int kLeastRounds = 8;               // where a busy machine makes them slow
constexpr double kSecondsEach = 3;            // of a measurement, once it has its least rounds
constexpr double kSecondsAltogether = 40;     // a share above its limit is measured on until then
constexpr double kResolution = 0.02;          // of a share: what best runs of equal work differ by
constexpr std::size_t kWidth = 4096;      // columns of the measured matrices: a 7 B model's
constexpr unsigned kParts = 8;
constexpr double kSecondsOfTurn = 0.5;    // of the working sets: one at the start, one after each part

Measured measured(double work, const Timing& timing) { return {work / timing.best(), timing.spread()}; }

// Something that is run again and again, and how much of it one run does.
struct Work {
  double amount = 0;
  std::function<void()> run;

  [[nodiscard]] double rate(const Timing& timing) const { return amount / timing.best(); }
};

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

class Calibrator {
 public:
  Calibrator(unsigned threads, const std::function<void(unsigned, unsigned)>& progress)
      : progress_(progress), ops_(make_fast_ops(threads)), pool_(threads), sets_(*ops_) {
    result_.threads = threads;
    result_.cache_bytes = last_level_cache_bytes();
    result_.uncached_bytes = uncached_bytes();
    window_ = window_bytes(threads);
    windows_ = result_.uncached_bytes / window_;
  }

  CpuCalibration run() {
    sets_.take_turn(kSecondsOfTurn);
    measure_memory();
    MemoryProbe probe(result_.threads, result_.uncached_bytes);
    reading_ = {static_cast<double>(window_), [&] { probe.read_next(window_); }};
    std::size_t product = 0;
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      result_.products[product++] = {type, measure_product(type)};
      step();
    }
    result_.attention = measure_attention();
    step();
    measure_start();
    measure_matmul();
    step();
    result_.paired_read = measured(reading_.amount, read_);
    result_.read = result_.paired_read;
    for (const Measured& other : {result_.by_threads.back().read, result_.by_size.back().read}) {
      if (other.rate > result_.read.rate) result_.read = other;
    }
    refuse_shares();
    sets_.report(result_);
    return std::move(result_);
  }

 private:
  void step() {
    progress_(++done_, kParts);
    sets_.take_turn(kSecondsOfTurn);
  }

  static Timing repeat(int rounds, const std::function<void()>& body) {
    Timing timing;
    const Stopwatch watch;
    for (int i = 0; i < rounds && (i < kLeastRounds || watch.seconds() < kSecondsEach); ++i) timing.run(body);
    return timing;
  }

  // Runs work and limit in turn, so that both meet the same machine; goes on while the work seems to beat its limit,
  // which then was not seen at its best.
  Timing against(const Work& work, const Work& limit, Timing& limit_timing) const {
    Timing timing;
    const Stopwatch watch;
    for (int i = 0;; ++i) {
      const bool enough = i >= kRounds || (i >= kLeastRounds && watch.seconds() > kSecondsEach);
      const bool possible = i > 0 && work.rate(timing) <= limit.rate(limit_timing);
      if (enough && (possible || altogether_.seconds() > kSecondsAltogether)) return timing;
      limit_timing.run(limit.run);
      timing.run(work.run);
    }
  }

  void measure_memory() {
    const unsigned all = result_.threads;
    std::vector<unsigned> counts;
    for (unsigned n = 1; n < all; n *= 2) counts.push_back(n);
    counts.push_back(all);
    for (const unsigned n : counts) {
      MemoryProbe probe(n, result_.uncached_bytes);
      const Timing reads = repeat(kRounds, [&] { probe.read_next(window_); });
      ThreadPool pool(n);
      const Timing barrier = repeat(1000, [&] { pool.parallel_for(n, [](std::size_t) {}); });
      result_.by_threads.push_back({n, measured(static_cast<double>(window_), reads), barrier.best()});
      if (n == all) {
        const Timing copies = repeat(kRounds / 4, [&] { probe.copy(); });
        result_.copy = measured(static_cast<double>(probe.bytes_copied()), copies);
      }
    }
    step();
    std::vector<std::uint64_t> sizes = {std::uint64_t{all} << 14, std::uint64_t{all} << 18, result_.cache_bytes / 4,
                                        result_.uncached_bytes};
    std::sort(sizes.begin(), sizes.end());
    for (const std::uint64_t bytes : sizes) {
      MemoryProbe probe(all, bytes);
      result_.by_size.push_back({bytes, measured(static_cast<double>(probe.bytes_read()),
                                                 repeat(kRounds / 2, [&] { probe.read(); }))});
    }
    step();
  }

  // Windows of a matrix that no cache holds, one a run.
  Measured measure_product(DType type) {
    const std::size_t rows = window_ / (kWidth * size_of(type));
    std::vector<Weight> windows;
    for (std::size_t i = 0; i < windows_; ++i) windows.push_back(constant_weight(type, rows, kWidth));
    const std::vector<float> x(kWidth, 0.5F);
    std::vector<float> out(rows);
    std::size_t next = 0;
    const Work product{static_cast<double>(windows[0].bytes()),
                       [&] { ops_->linear(x, windows[next++ % windows_], nullptr, out); }};
    return measured(product.amount, against(product, reading_, read_));
  }

  Measured measure_attention() {
    const auto slots = static_cast<std::uint32_t>(window_ / AttentionWork::kSlotBytes);
    AttentionWork windows(*ops_, slots, windows_);
    const Work attention{static_cast<double>(slots) * AttentionWork::kSlotBytes, [&] { windows.run(); }};
    return measured(attention.amount, against(attention, reading_, read_));
  }

  // What a large product starts with before it has read anything: it is cut for all threads.
  void measure_start() {
    const Weight tiny = constant_weight(DType::kBF16, 8, 64);
    const std::vector<float> x(64, 0.5F);
    std::vector<float> out(8);
    const Timing product = repeat(1000, [&] { ops_->linear(x, tiny, nullptr, out); });
    result_.linear_start_seconds = product.best() + result_.by_threads.back().barrier_seconds;
  }

  void measure_matmul() {
    constexpr std::size_t kTokens = 512;
    constexpr std::size_t kCols = 1024;
    const std::size_t rows = 512 * std::size_t{result_.threads};
    const Weight w = constant_weight(DType::kF32, rows, kCols);
    const std::vector<float> x(kTokens * kCols, 0.5F);
    std::vector<float> out(kTokens * rows);
    const Work product{2.0 * kTokens * kCols * static_cast<double>(rows), [&] { ops_->linear(x, w, nullptr, out); }};
    constexpr std::uint64_t kMultiplyAdds = 1000000;
    std::atomic<std::uint64_t> done{0};
    Work registers{0, [&] {
                     pool_.parallel_for(result_.threads, [&](std::size_t) {
                       done += fast::multiply_add_in_registers(kMultiplyAdds);
                     });
                   }};
    registers.run();
    registers.amount = static_cast<double>(done);
    Timing limit;
    result_.matmul = measured(product.amount, against(product, registers, limit));
    result_.multiply_add = measured(registers.amount, limit);
  }

  void refuse_shares() const {
    for (const ProductSample& product : result_.products) {
      refuse_above_limit("a matrix-vector product", product.weights.rate, "plain reading", result_.paired_read.rate);
    }
    refuse_above_limit("attention", result_.attention.rate, "plain reading", result_.paired_read.rate);
    refuse_above_limit("a matrix product", result_.matmul.rate, "multiplying in registers", result_.multiply_add.rate);
  }

  const std::function<void(unsigned, unsigned)>& progress_;
  unsigned done_ = 0;
  CpuCalibration result_;
  std::unique_ptr<Ops> ops_;
  ThreadPool pool_;
  WorkingSets sets_;
  Stopwatch altogether_;
  std::uint64_t window_ = 0;  // bytes
  std::size_t windows_ = 1;   // of what no cache holds
  Work reading_;              // the limit of what reads memory
  Timing read_;               // of it, by all threads: every measurement adds runs
};

}  // namespace

void refuse_above_limit(const char* what, double rate, const char* of, double limit) {
  if (rate <= limit * (1 + kResolution)) return;
  throw Error(fmt::format("calibration: {} reached {:.1f} % of {}, which cannot be: the machine was busy", what,
                          100 * rate / limit, of))
      .note("close other programs and run it again, or leave them a core with --threads");
}

CpuCalibration calibrate_cpu(unsigned threads, const std::function<void(unsigned, unsigned)>& progress) {
  return Calibrator(threads, progress).run();
}

}  // namespace kvroof
