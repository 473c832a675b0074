#include "kernels/cpu/calibration.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "kernels/cpu/bandwidth.hpp"
#include "kernels/cpu/fast_kernels.hpp"
#include "kernels/cpu/fast_ops.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

constexpr int kRounds = 12;        // of a measurement
constexpr int kMostRounds = 4 * kRounds;  // while a share lies above its limit
constexpr std::size_t kWidth = 4096;      // columns of the measured matrices: a 7 B model's
constexpr unsigned kParts = 8;

Measured measured(double work, const Timing& timing) { return {work / timing.best(), timing.spread()}; }

Weight constant_weight(DType type, std::size_t rows, std::size_t cols) {
  // 1.0 in bf16, and a number near 1 in the other types.
  Weight w{type, rows, cols, AlignedBytes(rows * cols * size_of(type))};
  std::fill_n(reinterpret_cast<std::uint16_t*>(w.data.data()), w.data.size() / 2, std::uint16_t{0x3f80});
  return w;
}

class Calibrator {
 public:
  Calibrator(unsigned threads, const std::function<void(unsigned, unsigned)>& progress)
      : progress_(progress), ops_(make_fast_ops(threads)), pool_(threads) {
    result_.threads = threads;
    result_.cache_bytes = last_level_cache_bytes();
    result_.uncached_bytes = uncached_bytes();
  }

  CpuCalibration run() {
    measure_memory();
    MemoryProbe probe(result_.threads, result_.uncached_bytes);
    std::size_t product = 0;
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      result_.products[product++] = {type, measure_product(type, probe)};
      step();
    }
    result_.attention = measure_attention(probe);
    step();
    measure_starts();
    measure_matmul();
    step();
    result_.paired_read = measured(static_cast<double>(probe.bytes_read()), read_);
    result_.read = result_.paired_read;
    for (const Measured& other : {result_.by_threads.back().read, result_.by_size.back().read}) {
      if (other.rate > result_.read.rate) result_.read = other;
    }
    refuse_shares();
    return std::move(result_);
  }

 private:
  void step() { progress_(++done_, kParts); }

  static Timing repeat(int rounds, const std::function<void()>& body) {
    Timing timing;
    for (int i = 0; i < rounds; ++i) timing.run(body);
    return timing;
  }

  // Runs work and limit in turn; goes on while the work seems to beat its limit, which then was not seen at its best.
  static Timing against(double work, const std::function<void()>& body, double limit_work, Timing& limit,
                        const std::function<void()>& limit_body) {
    Timing timing;
    for (int i = 0; i < kMostRounds; ++i) {
      if (i >= kRounds && work / timing.best() <= limit_work / limit.best()) break;
      limit.run(limit_body);
      timing.run(body);
    }
    return timing;
  }

  void measure_memory() {
    const unsigned all = result_.threads;
    std::vector<unsigned> counts;
    for (unsigned n = 1; n < all; n *= 2) counts.push_back(n);
    counts.push_back(all);
    for (const unsigned n : counts) {
      MemoryProbe probe(n, result_.uncached_bytes);
      const Timing reads = repeat(kRounds, [&] { probe.read(); });
      ThreadPool pool(n);
      const Timing barrier = repeat(1000, [&] { pool.parallel_for(n, [](std::size_t) {}); });
      result_.by_threads.push_back({n, measured(static_cast<double>(probe.bytes_read()), reads), barrier.best()});
      if (n == all) {
        const Timing copies = repeat(kRounds, [&] { probe.copy(); });
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
                                                 repeat(2 * kRounds, [&] { probe.read(); }))});
    }
    step();
  }

  Measured measure_product(DType type, MemoryProbe& probe) {
    const std::size_t rows = result_.uncached_bytes / (kWidth * size_of(type));
    const Weight w = constant_weight(type, rows, kWidth);
    const std::vector<float> x(kWidth, 0.5F);
    std::vector<float> out(rows);
    const auto bytes = static_cast<double>(w.bytes());
    return measured(bytes, against(bytes, [&] { ops_->linear(x, w, nullptr, out); },
                                   static_cast<double>(probe.bytes_read()), read_, [&] { probe.read(); }));
  }

  // A decode step's attention of one layer, 32 heads of 128, over caches that no processor cache holds.
  Measured measure_attention(MemoryProbe& probe) {
    constexpr std::uint32_t kHeads = 32;
    constexpr std::size_t kHeadDim = 128;
    const auto slots = static_cast<std::uint32_t>(result_.uncached_bytes / (kHeads * kHeadDim * 2 * 2));
    const auto step_over = [&](std::uint32_t count, const std::function<void(std::span<const AttendCall>)>& body) {
      const Weight keys = constant_weight(DType::kBF16, std::size_t{kHeads} * count, kHeadDim);
      const Weight values = constant_weight(DType::kBF16, std::size_t{kHeads} * count, kHeadDim);
      const std::vector<float> q(kHeads * kHeadDim, 0.01F);
      std::vector<float> out(q.size());
      LayerPolicy policy({"full", {}, false, {}}, PolicyContext{}, kHeads, kHeads);
      std::vector<AttendCall> calls;
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        for (std::uint32_t i = 0; i < count; ++i) policy.admit(HeadId(h), TokenPos(i));
        const auto part = [&](const Weight& w) {
          RowsView rows = w.view();
          rows.data = rows.row(std::size_t{h} * count);
          rows.count = count;
          return rows;
        };
        calls.push_back({std::span(q).subspan(h * kHeadDim, kHeadDim), part(keys), part(values),
                         std::span(out).subspan(h * kHeadDim, kHeadDim), TokenPos(count - 1), &policy, HeadId(h), h});
      }
      body(calls);
    };
    step_over(1, [&](std::span<const AttendCall> calls) {
      result_.attention_start_seconds = repeat(1000, [&] { ops_->attend(calls, {}); }).best();
    });
    Measured attention;
    step_over(slots, [&](std::span<const AttendCall> calls) {
      const double bytes = 2.0 * static_cast<double>(slots) * kHeads * kHeadDim * 2;
      attention = measured(bytes, against(bytes, [&] { ops_->attend(calls, {}); },
                                          static_cast<double>(probe.bytes_read()), read_, [&] { probe.read(); }));
    });
    return attention;
  }

  // What each operator costs before it has read anything.
  void measure_starts() {
    const Weight tiny = constant_weight(DType::kBF16, 8, 64);
    const std::vector<float> x(64, 0.5F);
    std::vector<float> out(8);
    const Timing product = repeat(1000, [&] { ops_->linear(x, tiny, nullptr, out); });
    result_.linear_start_seconds = product.best() + result_.by_threads.back().barrier_seconds;

    constexpr std::size_t kHidden = 2048;
    constexpr std::size_t kFfn = 5632;
    const Norm norm{constant_weight(DType::kBF16, 1, kHidden), {}};
    const RotaryRule rotary = plain_rotary(RotaryStyle::kHalfSplit, 128, 1e4);
    std::vector<float> row(kHidden, 0.5F), other(kHidden, 0.5F), gate(kFfn, 0.5F), up(kFfn, 0.5F);
    const TokenPos position(100);
    result_.elementwise_seconds = repeat(200, [&] {
                                    for (int i = 0; i < 2; ++i) {
                                      ops_->norm(row, norm, {}, other);
                                      ops_->rotate(other, {{&position, 1}, {}}, kHidden / 128, 128, 0, rotary);
                                      ops_->add_residual(row, other);
                                    }
                                    ops_->gated(Activation::kSilu, gate, up, gate);
                                  }).best();
  }

  void measure_matmul() {
    constexpr std::size_t kTokens = 512;
    constexpr std::size_t kCols = 1024;
    const std::size_t rows = 512 * std::size_t{result_.threads};
    const Weight w = constant_weight(DType::kF32, rows, kCols);
    const std::vector<float> x(kTokens * kCols, 0.5F);
    std::vector<float> out(kTokens * rows);
    const double flops = 2.0 * kTokens * kCols * static_cast<double>(rows);
    constexpr std::uint64_t kMultiplyAdds = 1000000;
    std::atomic<std::uint64_t> done{0};
    const auto in_registers = [&] {
      pool_.parallel_for(result_.threads, [&](std::size_t) { done += fast::multiply_add_in_registers(kMultiplyAdds); });
    };
    in_registers();
    const auto limit_flops = static_cast<double>(done);
    Timing limit;
    const Timing matmul =
        against(flops, [&] { ops_->linear(x, w, nullptr, out); }, limit_flops, limit, in_registers);
    result_.matmul = measured(flops, matmul);
    result_.multiply_add = measured(limit_flops, limit);
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
  Timing read_;  // of everything uncached, by all threads: every measurement adds runs
};

}  // namespace

void refuse_above_limit(const char* what, double rate, const char* of, double limit) {
  if (rate <= limit) return;
  throw Error(fmt::format("calibration: {} reached {:.1f} % of {}, which cannot be: the machine was busy", what,
                          100 * rate / limit, of))
      .note("close other programs and run it again");
}

CpuCalibration calibrate_cpu(unsigned threads, const std::function<void(unsigned, unsigned)>& progress) {
  return Calibrator(threads, progress).run();
}

}  // namespace kvroof
