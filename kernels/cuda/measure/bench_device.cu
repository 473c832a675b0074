#include "kernels/cuda/measure/bench_device.hpp"

#include <chrono>
#include <cstring>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace kvroof::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kPacks = 8;  // of 16 bytes that a thread has in flight

struct Stretch {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t packs = 0;
  float* sink = nullptr;
  Noise noise = Noise::kBytes;
  float scale = 1;
  std::uint32_t seed = 0;
};

KV_DEVICE std::size_t first_pack() { return std::size_t{block_x()} * kThreads * kPacks + thread_x(); }

KV_PLAIN_KERNEL void read_packs(Stretch a) {
  await_previous();
  Pack packs[kPacks] = {};
  KV_UNROLL
  for (unsigned i = 0; i < kPacks; ++i) {
    const std::size_t at = first_pack() + i * kThreads;
    if (at < a.packs) packs[i] = load_once(reinterpret_cast<const Pack*>(a.from) + at);
  }
  std::uint32_t bits = 0;
  KV_UNROLL
  for (unsigned i = 0; i < kPacks; ++i) bits += packs[i].x ^ packs[i].y ^ packs[i].z ^ packs[i].w;
  if (bits == 0x5eedU) *a.sink = float_of(bits);  // hardly ever; but the reads cannot be left out
}

KV_PLAIN_KERNEL void copy_packs(Stretch a) {
  await_previous();
  Pack packs[kPacks] = {};
  KV_UNROLL
  for (unsigned i = 0; i < kPacks; ++i) {
    const std::size_t at = first_pack() + i * kThreads;
    if (at < a.packs) packs[i] = load_once(reinterpret_cast<const Pack*>(a.from) + at);
  }
  KV_UNROLL
  for (unsigned i = 0; i < kPacks; ++i) {
    const std::size_t at = first_pack() + i * kThreads;
    if (at < a.packs) reinterpret_cast<Pack*>(a.to)[at] = packs[i];
  }
}

KV_PLAIN_KERNEL void fill_packs(Stretch a) {
  await_previous();
  KV_UNROLL
  for (unsigned i = 0; i < kPacks; ++i) {
    const std::size_t at = first_pack() + i * kThreads;
    if (at < a.packs) reinterpret_cast<Pack*>(a.to)[at] = Pack{1, 2, 3, static_cast<std::uint32_t>(at)};
  }
}

// The finaliser of MurmurHash3 (Appleby): every bit of the input changes half of the output's.
KV_DEVICE std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

KV_DEVICE std::uint32_t noise_word(const Stretch& a, std::size_t word) {
  const std::uint32_t bits =
      mixed(static_cast<std::uint32_t>(word) ^ mixed(a.seed + static_cast<std::uint32_t>(word >> 32)));
  if (a.noise == Noise::kBytes) return bits;
  const auto number = [&](std::uint32_t sixteen) {
    return a.scale * (static_cast<float>(sixteen) - 32767.5F) / 32768.0F;
  };
  if (a.noise == Noise::kF32) return bits_of(number(bits & 0xffffU));
  const float low = number(bits & 0xffffU);
  const float high = number(bits >> 16);
  if (a.noise == Noise::kBF16)
    return float_to_bf16(low) | static_cast<std::uint32_t>(float_to_bf16(high)) << 16;
  return float_to_half(low) | static_cast<std::uint32_t>(float_to_half(high)) << 16;
}

KV_PLAIN_KERNEL void noise_packs(Stretch a) {
  await_previous();
  for (unsigned i = 0; i < kPacks; ++i) {
    const std::size_t at = first_pack() + i * kThreads;
    if (at >= a.packs) continue;
    reinterpret_cast<Pack*>(a.to)[at] =
        Pack{noise_word(a, at * 4), noise_word(a, at * 4 + 1), noise_word(a, at * 4 + 2), noise_word(a, at * 4 + 3)};
  }
}

struct Draws {
  const NoiseKey* keys = nullptr;
  std::size_t count = 0;
  float* to = nullptr;
};

KV_PLAIN_KERNEL void draw_gumbel(Draws a) {
  await_previous();
  const std::size_t i = std::size_t{block_x()} * kThreads + thread_x();
  if (i < a.count) a.to[i] = gumbel_draw(a.keys[i]);
}

void launch_stretch(Stream& stream, void (*kernel)(Stretch), const Stretch& a) {
  const auto blocks = static_cast<unsigned>((a.packs + kThreads * kPacks - 1) / (kThreads * kPacks));
  launch(stream, kernel, {blocks}, kThreads, a);
}

Stretch stretch(const std::byte* from, std::byte* to, std::size_t bytes) {
  Stretch a;
  a.from = from;
  a.to = to;
  a.packs = bytes / sizeof(Pack);
  return a;
}

}  // namespace

void run_read(Stream& stream, const std::byte* from, std::size_t bytes, float* sink) {
  Stretch a = stretch(from, nullptr, bytes);
  a.sink = sink;
  launch_stretch(stream, &read_packs, a);
}

void run_copy(Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes) {
  launch_stretch(stream, &copy_packs, stretch(from, to, bytes));
}

void run_fill(Stream& stream, std::byte* to, std::size_t bytes) {
  launch_stretch(stream, &fill_packs, stretch(nullptr, to, bytes));
}

void run_noise(Stream& stream, Noise kind, float scale, std::uint32_t seed, std::byte* to, std::size_t bytes) {
  Stretch a = stretch(nullptr, to, bytes);
  a.noise = kind;
  a.scale = scale;
  a.seed = seed;
  launch_stretch(stream, &noise_packs, a);
}

void run_gumbel(Stream& stream, const NoiseKey* keys, std::size_t count, float* to) {
  launch(stream, &draw_gumbel, {static_cast<unsigned>((count + kThreads - 1) / kThreads)}, kThreads,
         Draws{keys, count, to});
}

#if defined(__CUDACC__)

namespace {

const char* problem_of(cudaError_t status) { return status == cudaSuccess ? nullptr : cudaGetErrorString(status); }
cudaStream_t handle_of(Stream& stream) { return static_cast<cudaStream_t>(stream.handle); }

int attribute(cudaDeviceAttr which) {
  int value = 0;
  cudaDeviceGetAttribute(&value, which, 0);
  return value;
}

}  // namespace

CardFacts card_facts() {
  CardFacts facts;
  cudaRuntimeGetVersion(&facts.runtime_version);
  cudaDriverGetVersion(&facts.driver_version);
  facts.multiprocessors = static_cast<unsigned>(attribute(cudaDevAttrMultiProcessorCount));
  facts.l2_bytes = static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize));
  facts.sm_clock_khz = attribute(cudaDevAttrClockRate);
  facts.memory_clock_khz = attribute(cudaDevAttrMemoryClockRate);
  facts.bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth);
  facts.ecc = attribute(cudaDevAttrEccEnabled);
  facts.shared_memory_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return facts;
}

void run_driver_copy(Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes) {
  if (stream.problem != nullptr) return;
  stream.problem = problem_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle_of(stream)));
}

const char* time_launches(Stream& stream, const std::function<void()>& launches, double& seconds) {
  cudaEvent_t events[2] = {};
  cudaError_t status = cudaSuccess;
  const auto then = [&status](auto&& call) {
    if (status == cudaSuccess) status = call();
  };
  for (cudaEvent_t& event : events) then([&] { return cudaEventCreate(&event); });
  then([&] { return cudaEventRecord(events[0], handle_of(stream)); });
  if (status == cudaSuccess) launches();
  then([&] { return cudaEventRecord(events[1], handle_of(stream)); });
  then([&] { return cudaEventSynchronize(events[1]); });
  float milliseconds = 0;
  then([&] { return cudaEventElapsedTime(&milliseconds, events[0], events[1]); });
  seconds = static_cast<double>(milliseconds) * 1e-3;
  for (cudaEvent_t event : events) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  return problem_of(status);
}

#else

CardFacts card_facts() {
  CardFacts facts;
  facts.emulated = true;
  facts.multiprocessors = 3;
  facts.l2_bytes = 4096;
  return facts;
}

void run_driver_copy(Stream& stream, const std::byte* from, std::byte* to, std::size_t bytes) {
  emulator::submit(stream, {[=] { std::memcpy(to, from, bytes); }});
}

const char* time_launches(Stream& stream, const std::function<void()>& launches, double& seconds) {
  const auto start = std::chrono::steady_clock::now();
  launches();
  synchronize(stream);
  seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return nullptr;
}

#endif

}  // namespace kvroof::cuda
