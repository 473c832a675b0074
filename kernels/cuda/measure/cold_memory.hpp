// Memory for measurements: filled with random numbers, and so much of it that nothing is still in the cache when its
// turn comes again.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"
#include "kernels/cuda/measure/bench_device.hpp"

namespace kvroof::cuda {

// A stream of the first device, closed at the end. Throws Error when there is none.
class OpenStream {
 public:
  OpenStream() { check_device(open_stream(stream_), "opening a stream"); }
  ~OpenStream() { close_stream(stream_); }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;
  [[nodiscard]] Stream& get() { return stream_; }

 private:
  Stream stream_;
};

template <class T>
DeviceBuffer uploaded(Stream& stream, const std::vector<T>& data) {
  DeviceBuffer buffer(data.size() * sizeof(T));
  copy_to_device(stream, buffer.at(), std::as_bytes(std::span(data)));
  check_device(synchronize(stream), "copying data of a measurement");
  return buffer;
}

// `bytes` of random numbers of the kind.
DeviceBuffer noise(Stream& stream, Noise kind, float scale, std::size_t bytes);

// How many pieces of so many bytes lie behind each other before the first comes again: four times the cache of the
// chip.
std::size_t pieces_of(std::size_t bytes, const CardFacts& card);

}  // namespace kvroof::cuda
