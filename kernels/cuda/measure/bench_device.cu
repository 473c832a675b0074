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

TimedWork::TimedWork(Stream& stream, unsigned repetitions, const std::function<void(unsigned)>& work, double bytes)
    : stream_(stream), repetitions_(repetitions), work_(work), bytes_(bytes) {
  cudaEvent_t start = nullptr, end = nullptr;
  note(problem_of(cudaEventCreate(&start)));
  note(problem_of(cudaEventCreate(&end)));
  start_ = start;
  end_ = end;
  note(problem_of(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeThreadLocal)));
  if (problem_ != nullptr) return;
  for (unsigned i = 0; i < repetitions; ++i) work(i);
  cudaGraph_t graph = nullptr;
  note(problem_of(cudaStreamEndCapture(handle_of(stream), &graph)));
  note(stream.problem);
  if (problem_ != nullptr) return;
  cudaGraphExec_t ready = nullptr;
  note(problem_of(cudaGraphInstantiate(&ready, graph, 0)));
  graph_ = ready;
  cudaGraphDestroy(graph);
}

TimedWork::~TimedWork() {
  if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
  if (start_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(start_));
  if (end_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(end_));
}

double TimedWork::run() {
  if (problem_ != nullptr) return 0;
  note(problem_of(cudaEventRecord(static_cast<cudaEvent_t>(start_), handle_of(stream_))));
  note(problem_of(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), handle_of(stream_))));
  note(problem_of(cudaEventRecord(static_cast<cudaEvent_t>(end_), handle_of(stream_))));
  note(problem_of(cudaEventSynchronize(static_cast<cudaEvent_t>(end_))));
  float milliseconds = 0;
  note(problem_of(
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start_), static_cast<cudaEvent_t>(end_))));
  return static_cast<double>(milliseconds) * 1e-3 / repetitions_;
}

#else

CardFacts card_facts() {
  CardFacts facts;
  facts.emulated = true;
  facts.l2_bytes = 4096;
  return facts;
}

void run_driver_copy(Stream&, const std::byte* from, std::byte* to, std::size_t bytes) { std::memcpy(to, from, bytes); }

TimedWork::TimedWork(Stream& stream, unsigned repetitions, const std::function<void(unsigned)>& work, double bytes)
    : stream_(stream), repetitions_(repetitions), work_(work), bytes_(bytes) {}

TimedWork::~TimedWork() = default;

double TimedWork::run() {
  const auto start = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < repetitions_; ++i) work_(i);
  note(stream_.problem);
  if (bytes_ > 0) return kEmulatedStartSeconds + bytes_ / kEmulatedBytesPerSecond;
  const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start;
  return gone.count() / repetitions_;
}

#endif

}  // namespace kvroof::cuda
