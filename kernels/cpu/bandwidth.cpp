#include "kernels/cpu/bandwidth.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "kernels/cpu/fast_kernels.hpp"
#include "sim/core/error.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBlock = kMiB / 4;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "32768K" or "32M" as the kernel writes it; 0 when it is neither.
std::uint64_t cache_size(const std::string& text) {
  std::uint64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc()) return 0;
  if (end == text.data() + text.size()) return size;
  return *end == 'K' ? size * 1024 : *end == 'M' ? size * kMiB : 0;
}

}  // namespace

std::uint64_t last_level_cache_bytes() {
  // By level, then by the processors that share one: sizes of the instances.
  std::map<std::string, std::map<std::string, std::uint64_t>> levels;
  std::error_code ignored;
  for (const auto& cpu : fs::directory_iterator("/sys/devices/system/cpu", ignored)) {
    for (const auto& index : fs::directory_iterator(cpu.path() / "cache", ignored)) {
      if (first_line(index.path() / "type") == "Instruction") continue;
      const std::string level = first_line(index.path() / "level");
      const std::uint64_t size = cache_size(first_line(index.path() / "size"));
      if (!level.empty() && size > 0) levels[level][first_line(index.path() / "shared_cpu_list")] = size;
    }
  }
  if (levels.empty()) return 32 * kMiB;
  std::uint64_t total = 0;
  for (const auto& [shared_by, size] : levels.rbegin()->second) total += size;
  return total;
}

std::uint64_t uncached_bytes() { return std::max(256 * kMiB, 4 * last_level_cache_bytes()) / kMiB * kMiB; }

double Timing::best() const { return *std::min_element(seconds_.begin(), seconds_.end()); }

std::uint64_t window_bytes(unsigned threads) {
  return std::min(uncached_bytes(), std::max<std::uint64_t>(64, 8ULL * threads) * kMiB);
}

double Timing::spread() const {
  std::vector<double> sorted = seconds_;
  const auto quarter = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 4);
  std::nth_element(sorted.begin(), quarter, sorted.end());
  return *quarter / best() - 1;
}

MemoryProbe::MemoryProbe(unsigned threads, std::uint64_t bytes) : pool_(threads), buffer_(bytes) {
  block_ = std::clamp<std::uint64_t>(bytes / threads / 64 * 64, 64, kBlock);
  repeats_ = bytes / threads >= kMiB ? 1 : kMiB / block_;
  // Each thread is the first to touch what it fills, which places the page near it.
  for_blocks(bytes, [&](std::uint64_t first, std::uint64_t count) {
    std::memset(buffer_.data() + first, 1, count);
  });
}

void MemoryProbe::for_blocks(std::uint64_t bytes,
                             const std::function<void(std::uint64_t first, std::uint64_t count)>& body) {
  pool_.parallel_for((bytes + block_ - 1) / block_, [&](std::size_t i) {
    const std::uint64_t first = i * block_;
    body(first, std::min(block_, bytes - first));
  });
}

std::uint64_t MemoryProbe::read_at(std::uint64_t from, std::uint64_t bytes, std::uint64_t repeats) {
  std::atomic<std::uint64_t> sum{0};
  for_blocks(bytes, [&](std::uint64_t first, std::uint64_t count) {
    std::uint64_t of_block = 0;
    for (std::uint64_t i = 0; i < repeats; ++i) of_block += fast::read_sum({buffer_.data() + from + first, count});
    sum += of_block;
  });
  return sum;
}

std::uint64_t MemoryProbe::read() { return read_at(0, buffer_.size(), repeats_); }

std::uint64_t MemoryProbe::read_next(std::uint64_t bytes) {
  check(bytes <= buffer_.size(), "a window lies within its buffer");
  if (next_ + bytes > buffer_.size()) next_ = 0;
  return read_at(std::exchange(next_, next_ + bytes), bytes, 1);
}

void MemoryProbe::copy() {
  const std::uint64_t half = buffer_.size() / 2 / 64 * 64;
  for_blocks(half, [&](std::uint64_t first, std::uint64_t count) {
    fast::stream_copy({buffer_.data() + first, count}, {buffer_.data() + half + first, count});
  });
}

bool MemoryProbe::can_flush() { return HWY_ARCH_X86 != 0; }

void MemoryProbe::flush() {
  constexpr std::uint64_t kLine = 64;  // of every x86
  for_blocks(buffer_.size(), [&](std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; i += kLine) hwy::FlushCacheline(buffer_.data() + first + i);
  });
}

std::uint64_t bandwidth_buffer_bytes(unsigned threads) {
  return MemoryProbe::can_flush() ? std::clamp<std::uint64_t>(8ULL * threads, 16, 256) * kMiB : uncached_bytes();
}

std::optional<double> measure_read_bandwidth(unsigned threads, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const std::uint64_t bytes = bandwidth_buffer_bytes(threads);
  const std::uint64_t window = std::min(bytes, window_bytes(threads));
  Timing timing;
  try {
    MemoryProbe probe(threads, bytes);
    while (timing.runs() * window < bytes || elapsed() < seconds) {
      if (MemoryProbe::can_flush()) probe.flush();
      timing.run([&] { probe.read_next(window); });
    }
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  } catch (const std::system_error&) {  // of a thread that cannot be started
    return std::nullopt;
  }
  return static_cast<double>(window) / timing.best();
}

}  // namespace kvroof
