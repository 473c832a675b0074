#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "kernels/cuda/device_activity.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pinned.hpp"
#include "sim/core/monotonic.hpp"

namespace kvroof::cuda {

#if defined(__CUDACC__)
namespace {

__global__ void code_probe() {}

const char* problem_of(cudaError_t status) { return status == cudaSuccess ? nullptr : cudaGetErrorString(status); }
cudaStream_t handle_of(Stream& stream) { return static_cast<cudaStream_t>(stream.handle); }

// Whoever asked answers a refusal: what is launched after it must not find it as an error of its own.
const char* refusal_of(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
  return problem_of(status);
}

}  // namespace

const char* allocate(std::size_t bytes, void** out) { return refusal_of(cudaMalloc(out, bytes)); }
void release(void* memory) { cudaFree(memory); }
const char* copy_in(Stream& stream, void* to, const void* from, std::size_t bytes) {
  return problem_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, handle_of(stream)));
}
const char* copy_out(Stream& stream, void* to, const void* from, std::size_t bytes) {
  const cudaError_t status = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, handle_of(stream));
  return status == cudaSuccess ? synchronize(stream) : problem_of(status);
}
const char* synchronize(Stream& stream) { return problem_of(cudaStreamSynchronize(handle_of(stream))); }
const char* allocate_pinned(std::size_t bytes, void** out) {
  return refusal_of(cudaHostAlloc(out, bytes, cudaHostAllocDefault));
}
void release_pinned(void* memory) { cudaFreeHost(memory); }
const char* copy_in_later(Stream& stream, void* to, std::size_t pitch, const void* from, std::size_t bytes,
                          std::size_t rows) {
  if (rows == 1) return copy_in(stream, to, from, bytes);
  return problem_of(
      cudaMemcpy2DAsync(to, pitch, from, bytes, bytes, rows, cudaMemcpyHostToDevice, handle_of(stream)));
}
const char* copy_out_later(Stream& stream, void* to, const void* from, std::size_t bytes) {
  return problem_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, handle_of(stream)));
}
const char* make_event(void** event) {
  cudaEvent_t made = nullptr;
  const cudaError_t status = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
  *event = made;
  return problem_of(status);
}
const char* record_event(Stream& stream, void* event) {
  return problem_of(cudaEventRecord(static_cast<cudaEvent_t>(event), handle_of(stream)));
}
const char* wait_for_event(void* event) { return problem_of(cudaEventSynchronize(static_cast<cudaEvent_t>(event))); }
void release_event(void* event) {
  if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}
const char* open_stream(Stream& stream) {
  cudaStream_t handle = nullptr;
  const cudaError_t status = cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking);
  stream.handle = handle;
  if (status != cudaSuccess) return problem_of(status);
  // By the code, not by the device: kernels made from PTX of 8.0 do not wait for the launch before (await_previous).
  cudaFuncAttributes attributes;
  const cudaError_t probed = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&code_probe));
  stream.overlaps = refusal_of(probed) == nullptr && attributes.ptxVersion >= 90 &&
                    std::getenv("KVROOF_NO_OVERLAP") == nullptr;
  stream.graphs = std::getenv("KVROOF_NO_GRAPHS") == nullptr;
  int multiprocessors = 0;
  const char* const why = problem_of(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  stream.multiprocessors = static_cast<unsigned>(multiprocessors);
  return why;
}
void close_stream(Stream& stream) { cudaStreamDestroy(handle_of(stream)); }

std::size_t launch_reserve() { return std::size_t{64} << 20; }

const char* begin_capture(Stream& stream) {
  return problem_of(cudaStreamBeginCapture(handle_of(stream), cudaStreamCaptureModeThreadLocal));
}
const char* end_capture(Stream& stream, void** graph) {
  cudaGraph_t definition = nullptr;
  const cudaError_t captured = cudaStreamEndCapture(handle_of(stream), &definition);
  if (captured != cudaSuccess) return refusal_of(captured);
  cudaGraphExec_t ready = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&ready, definition, 0);
  cudaGraphDestroy(definition);
  if (made != cudaSuccess) return refusal_of(made);
  // What a graph needs on the device is taken now, where there is a way back, and not at its first launch.
  const cudaError_t uploaded = cudaGraphUpload(ready, handle_of(stream));
  if (uploaded != cudaSuccess) {
    cudaGraphExecDestroy(ready);
    return refusal_of(uploaded);
  }
  *graph = ready;
  return nullptr;
}
const char* launch_graph(Stream& stream, void* graph) {
  return problem_of(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), handle_of(stream)));
}
void release_graph(void* graph) {
  if (graph != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

const char* find_device(DeviceFacts& facts) {
  cudaRuntimeGetVersion(&facts.runtime);
  if (cudaDriverGetVersion(&facts.driver) != cudaSuccess) facts.driver = 0;
  int devices = 0;
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  // What else keeps devices from being counted is no want of them, as a fabric manager that does not run.
  if (counted == cudaSuccess || counted == cudaErrorNoDevice) facts.devices = devices;
  if (counted != cudaSuccess || devices == 0) {
    cudaGetLastError();  // a missing driver must not fail a later call
    return counted != cudaSuccess ? cudaGetErrorString(counted) : "no CUDA-capable device is detected";
  }
  cudaDeviceProp properties;
  if (const char* why = problem_of(cudaGetDeviceProperties(&properties, 0))) return why;
  std::strncpy(facts.name, properties.name, sizeof facts.name - 1);
  facts.multiprocessors = static_cast<unsigned>(properties.multiProcessorCount);
  facts.major = properties.major;
  facts.minor = properties.minor;
  cudaFuncAttributes attributes;
  const cudaError_t probed = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&code_probe));
  const bool no_code = probed == cudaErrorNoKernelImageForDevice || probed == cudaErrorInvalidDeviceFunction;
  facts.has_code = !no_code;
  if (probed != cudaSuccess) {
    cudaGetLastError();
    return no_code ? "this program has no code for the device's architecture" : cudaGetErrorString(probed);
  }
  return problem_of(cudaMemGetInfo(&facts.free_bytes, &facts.total_bytes));
}

ActivityApi* device_activity() { return nullptr; }
const char* library_folder() { return nullptr; }

#else

ActivityApi* device_activity() { return emulated_activity(); }
const char* library_folder() {
  const char* const folder = std::getenv("KVROOF_EMULATED_LIBRARIES");
  return folder != nullptr ? folder : "";
}

namespace {

std::map<void*, std::size_t> g_allocated;
std::size_t g_in_use = 0;

// A device refuses to give and take memory meanwhile, and spoils what was captured.
constexpr const char* kMemoryInCapture = "memory asked for or given back while launches are captured";
bool g_capturing = false;
const char* g_spoilt = nullptr;

const char* spoil() { return g_spoilt = kMemoryInCapture; }

}  // namespace

const char* allocate(std::size_t bytes, void** out) {
  if (g_capturing) return spoil();
  if (emulator::failure != nullptr) return emulator::failure;
  const bool room = emulator::memory_limit == 0 || bytes <= emulator::memory_limit - g_in_use;
  *out = room ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
  if (*out == nullptr) return "out of memory";
  std::memset(*out, 0xff, bytes);  // what is read before it is written shows as NaN
  g_allocated[*out] = bytes;
  g_in_use += bytes;
  return nullptr;
}
void release(void* memory) {
  if (memory == nullptr) return;
  if (g_capturing) spoil();
  emulator::catch_up();  // a device has done what it was asked for before it takes memory back
  g_in_use -= g_allocated.extract(memory).mapped();
  std::free(memory);
}
namespace {

constexpr const char* kCopyInCapture = "a copy while launches are captured";
const char* copied(Stream& stream) { return stream.captured == nullptr ? nullptr : kCopyInCapture; }

// `rows` runs of `bytes`, which begin `pitch` bytes apart at `to`.
void copy_rows(void* to, std::size_t pitch, const void* from, std::size_t bytes, std::size_t rows, bool to_device) {
  const std::uint64_t start = monotonic_ns();
  for (std::size_t row = 0; row < rows; ++row) {
    std::memcpy(static_cast<std::byte*>(to) + row * pitch, static_cast<const std::byte*>(from) + row * bytes, bytes);
  }
  if (emulator::watcher != nullptr) emulator::watcher->copied(to_device, bytes * rows, start, monotonic_ns());
}

}  // namespace
// As on a device that reads the memory of the host by itself: the host's must live until the copy has been made.
const char* copy_in(Stream& stream, void* to, const void* from, std::size_t bytes) {
  return copy_in_later(stream, to, bytes, from, bytes, 1);
}
const char* copy_out(Stream& stream, void* to, const void* from, std::size_t bytes) {
  emulator::catch_up();
  copy_rows(to, bytes, from, bytes, 1, false);
  return copied(stream);
}
const char* synchronize(Stream& stream) {
  emulator::catch_up();
  return copied(stream);
}
const char* allocate_pinned(std::size_t bytes, void** out) {
  if (g_capturing) return spoil();
  *out = ::operator new(bytes, std::nothrow);
  return *out == nullptr ? "out of memory" : nullptr;
}
void release_pinned(void* memory) {
  if (g_capturing) spoil();
  ::operator delete(memory);
}
const char* copy_in_later(Stream& stream, void* to, std::size_t pitch, const void* from, std::size_t bytes,
                          std::size_t rows) {
  emulator::later([=] { copy_rows(to, pitch, from, bytes, rows, true); });
  return copied(stream);
}
const char* copy_out_later(Stream& stream, void* to, const void* from, std::size_t bytes) {
  emulator::later([=] { copy_rows(to, bytes, from, bytes, 1, false); });
  return copied(stream);
}
const char* make_event(void** event) {
  *event = new std::uint64_t{0};
  return nullptr;
}
const char* record_event(Stream&, void* event) {
  *static_cast<std::uint64_t*>(event) = emulator::asked();
  return nullptr;
}
const char* wait_for_event(void* event) {
  emulator::catch_up(*static_cast<std::uint64_t*>(event));
  return nullptr;
}
void release_event(void* event) { delete static_cast<std::uint64_t*>(event); }
namespace {

constexpr unsigned kMultiprocessors = 3;

class StreamQueue final : public emulator::LaunchQueue {
 public:
  explicit StreamQueue(Stream& stream) : stream_(stream) { ++emulator::open_streams; }
  ~StreamQueue() override { --emulator::open_streams; }
  void submit(std::function<void()> launch) override { emulator::submit(stream_, {std::move(launch)}); }

 private:
  Stream& stream_;
};

}  // namespace
const char* open_stream(Stream& stream) {
  stream.handle = static_cast<emulator::LaunchQueue*>(new StreamQueue(stream));
  stream.multiprocessors = kMultiprocessors;
  stream.overlaps = std::getenv("KVROOF_NO_OVERLAP") == nullptr;
  stream.graphs = std::getenv("KVROOF_NO_GRAPHS") == nullptr;
  return nullptr;
}
void close_stream(Stream& stream) {
  emulator::catch_up();  // what was asked for is done all the same
  delete static_cast<emulator::LaunchQueue*>(std::exchange(stream.handle, nullptr));
}

std::size_t launch_reserve() { return 0; }

const char* begin_capture(Stream& stream) {
  stream.captured = new emulator::Graph;
  g_capturing = true;
  g_spoilt = nullptr;
  return nullptr;
}
const char* end_capture(Stream& stream, void** graph) {
  *graph = std::exchange(stream.captured, nullptr);
  g_capturing = false;
  if (g_spoilt != nullptr) return g_spoilt;
  if (emulator::memory_limit != 0 && g_in_use >= emulator::memory_limit) return kNoMemory.data();
  if (emulator::watcher == nullptr) return nullptr;
  for (emulator::Work& launch : *static_cast<emulator::Graph*>(*graph)) {
    launch.node = emulator::watcher->cloned(launch.node);
  }
  return nullptr;
}
const char* launch_graph(Stream&, void* graph) {
  emulator::submit_graph(*static_cast<emulator::Graph*>(graph));
  return nullptr;
}
void release_graph(void* graph) { delete static_cast<emulator::Graph*>(graph); }
const char* find_device(DeviceFacts& facts) {
  std::strncpy(facts.name, "emulator", sizeof facts.name - 1);
  facts.multiprocessors = kMultiprocessors;
  facts.total_bytes = emulator::memory_limit;
  facts.free_bytes = emulator::memory_limit - std::min(g_in_use, emulator::memory_limit);
  return emulator::failure;
}

#endif

}  // namespace kvroof::cuda
