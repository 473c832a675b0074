#include "kernels/cpu/bandwidth.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "kernels/cpu/fast_kernels.hpp"

namespace kvroof {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBlock = kMiB;

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

std::uint64_t uncached_bytes() { return std::max(256 * kMiB, 4 * last_level_cache_bytes()) / kBlock * kBlock; }

MemoryProbe::MemoryProbe(unsigned threads, std::uint64_t bytes) : pool_(threads), buffer_(bytes) {
  for_blocks(bytes, [&](std::uint64_t first, std::uint64_t count) {
    // 1.0 in bf16: also valid numbers for the products that are measured against this read.
    for (std::uint64_t i = first; i + 1 < first + count; i += 2) {
      buffer_.data()[i] = std::byte{0x80};
      buffer_.data()[i + 1] = std::byte{0x3f};
    }
  });
}

void MemoryProbe::for_blocks(std::uint64_t bytes,
                             const std::function<void(std::uint64_t first, std::uint64_t count)>& body) {
  pool_.parallel_for((bytes + kBlock - 1) / kBlock, [&](std::size_t i) {
    const std::uint64_t first = i * kBlock;
    body(first, std::min(kBlock, bytes - first));
  });
}

std::uint64_t MemoryProbe::read() {
  std::atomic<std::uint64_t> sum{0};
  for_blocks(bytes(), [&](std::uint64_t first, std::uint64_t count) {
    sum += fast::read_sum({buffer_.data() + first, count});
  });
  return sum;
}

void MemoryProbe::copy() {
  const std::uint64_t half = bytes() / 2 / 64 * 64;
  for_blocks(half, [&](std::uint64_t first, std::uint64_t count) {
    fast::stream_copy({buffer_.data() + first, count}, {buffer_.data() + half + first, count});
  });
}

double measure_read_bandwidth(unsigned threads) {
  constexpr double kSeconds = 0.2;
  constexpr int kLeastPasses = 3;
  const auto start = std::chrono::steady_clock::now();
  MemoryProbe probe(threads, uncached_bytes());
  BestTime best;
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (int pass = 0; pass < kLeastPasses || elapsed() < kSeconds; ++pass) best.run([&] { probe.read(); });
  return static_cast<double>(probe.bytes()) / best.seconds();
}

}  // namespace kvroof
