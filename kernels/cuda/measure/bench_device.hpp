// What measuring needs of the device: facts, the time of launches, and the plainest kernels that read, copy,
// fill and make random numbers. nvcc and the emulator's compiler read the same text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/kernels.hpp"
#include "sim/core/gumbel.hpp"

namespace kvroof::cuda {

struct CardFacts {
  bool emulated = false;
  unsigned multiprocessors = 0;
  std::size_t l2_bytes = 0;
  int runtime_version = 0;  // 13000: CUDA 13.0
  int driver_version = 0;   // that the driver supports
  int sm_clock_khz = 0;     // the highest
  int memory_clock_khz = 0;
  int bus_bits = 0;
  int ecc = 0;
  int shared_memory_bytes = 0;  // a block may ask for
};
CardFacts card_facts();

// What the emulator says a repetition of so many bytes takes: that of a device of these constants.
inline constexpr double kEmulatedStartSeconds = 2e-6, kEmulatedBytesPerSecond = 1.5e9;

// The device's seconds for what `launches` asks the stream for, between two events; the emulator's are the host's.
// Null, or what the device answered.
const char* time_launches(Stream& stream, const std::function<void()>& launches, double& seconds);

// Whole packs of 16 bytes, aligned. `sink` holds one float, which no result depends on.
void run_read(Stream& stream, const std::byte* from, std::size_t bytes, float* sink);
void run_copy(Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes);
void run_fill(Stream& stream, std::byte* to, std::size_t bytes);
// The driver's own copy within the device.
void run_driver_copy(Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes);

enum class Noise : std::uint8_t { kBF16, kF16, kF32, kBytes };
// Numbers evenly in (−scale, scale) or random bytes; equal arguments, equal bytes.
void run_noise(Stream& stream, Noise kind, float scale, std::uint32_t seed, std::byte* to, std::size_t bytes);
// to[i] = gumbel_draw(keys[i]), for what checks that the device's bits are the host's.
void run_gumbel(Stream& stream, const NoiseKey* keys, std::size_t count, float* to);

}  // namespace kvroof::cuda
