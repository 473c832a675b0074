// Memory of the CUDA device, owned; errors of the device as Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "kernels/cuda/kernels.hpp"
#include "sim/core/error.hpp"

namespace kvroof::cuda {

// Throws Error naming what was being done, unless `problem` is null.
void check_device(const char* problem, const char* doing);

// The device refused memory. What it was for is said by whoever knows.
class OutOfDeviceMemory : public Error {
 public:
  OutOfDeviceMemory(std::uint64_t asked, std::uint64_t free, std::uint64_t total, const char* answer);
  std::uint64_t asked, free, total;  // bytes
};

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // Throws OutOfDeviceMemory.
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer() { release(data_); }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  template <class T = std::byte>
  [[nodiscard]] T* at(std::size_t byte = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + byte);
  }
  // Makes room for at least so many bytes; what was inside is lost when it has to grow.
  void reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    release(std::exchange(data_, nullptr));
    bytes_ = 0;
    *this = DeviceBuffer(bytes);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Throws Error with what to do about launches that cannot be captured.
[[noreturn]] void throw_refused_graph(const char* problem);

// Launches that were captured once and are made again and again (a CUDA graph): the host asks for all of them at once.
class LaunchGraph {
 public:
  LaunchGraph() = default;
  ~LaunchGraph() { release_graph(graph_); }
  LaunchGraph(LaunchGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  LaunchGraph& operator=(LaunchGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }

  [[nodiscard]] bool empty() const { return graph_ == nullptr; }
  // Notes what `launches` asks the stream for, and makes none of it. False: the device has no memory to note it in, and
  // the graph stays empty.
  template <class Launches>
  [[nodiscard]] bool capture(Stream& stream, const Launches& launches) {
    *this = LaunchGraph();
    check_device(begin_capture(stream), "capturing launches");
    try {
      launches();
    } catch (...) {
      end_capture(stream, &graph_);
      *this = LaunchGraph();
      throw;
    }
    const char* problem = end_capture(stream, &graph_);
    if (stream.problem != nullptr) problem = stream.problem;  // the launch that was refused says more than what follows
    if (problem == nullptr) return true;
    *this = LaunchGraph();
    if (stream.problem == nullptr && problem == kNoMemory) return false;
    throw_refused_graph(problem);
  }
  void run(Stream& stream) const { check_device(launch_graph(stream, graph_), "launching kernels"); }

 private:
  void* graph_ = nullptr;
};

void copy_to_device(Stream& stream, std::byte* to, std::span<const std::byte> from);
void copy_to_host(Stream& stream, std::span<std::byte> to, const std::byte* from);

}  // namespace kvroof::cuda
