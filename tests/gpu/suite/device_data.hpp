// Test data on both sides: random numbers in a stored type, what the kernel must read from them, and their copy on the
// device.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"
#include "sim/core/dtype.hpp"

namespace kvroof::suite {

using Random = std::mt19937_64;

// Rows of numbers of one stored type.
struct StoredRows {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [rows, width], after the scale
  std::vector<float> scales;  // [rows], int8 and int4
  std::uint32_t row_bytes = 0;
};

// What lies between rows is 0xff: it must not be read as numbers.
StoredRows stored_rows(cuda::Stored type, std::size_t rows, std::uint32_t width, float scale, Random& random);
// The number in element `column` of a stored row.
double stored_value(cuda::Stored type, const std::byte* row, double scale, std::uint32_t column);

std::vector<float> normal_floats(std::size_t count, float mean, Random& random);

const char* name_of(cuda::Stored type);

// A stream of the first device, closed at the end. Throws Error when there is none.
class OpenStream {
 public:
  OpenStream() { cuda::check_device(cuda::open_stream(stream_), "opening a stream"); }
  ~OpenStream() { cuda::close_stream(stream_); }
  OpenStream(const OpenStream&) = delete;
  OpenStream& operator=(const OpenStream&) = delete;
  [[nodiscard]] cuda::Stream& get() { return stream_; }

 private:
  cuda::Stream stream_;
};

template <class T>
cuda::DeviceBuffer uploaded(cuda::Stream& stream, const std::vector<T>& data) {
  cuda::DeviceBuffer buffer(data.size() * sizeof(T));
  cuda::copy_to_device(stream, buffer.at(), std::as_bytes(std::span(data)));
  cuda::check_device(cuda::synchronize(stream), "copying test data");
  return buffer;
}

// Memory full of 0xff: every float in it is a NaN.
inline cuda::DeviceBuffer poisoned(cuda::Stream& stream, std::size_t bytes) {
  return uploaded(stream, std::vector<std::byte>(bytes, std::byte{0xff}));
}

template <class T>
std::vector<T> downloaded(cuda::Stream& stream, const cuda::DeviceBuffer& buffer, std::size_t count) {
  std::vector<T> data(count);
  cuda::copy_to_host(stream, std::as_writable_bytes(std::span(data)), buffer.at());
  return data;
}

// The largest difference from what was expected, relative to the largest number expected. A result that is no number is
// infinitely wrong.
class Deviation {
 public:
  void add(double got, double expected) {
    largest_ = std::max(largest_, std::abs(expected));
    const double difference = std::abs(got - expected);
    worst_ = std::isfinite(difference) ? std::max(worst_, difference) : std::numeric_limits<double>::infinity();
    ++count_;
  }
  [[nodiscard]] double relative() const { return largest_ > 0 ? worst_ / largest_ : worst_; }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  double largest_ = 0, worst_ = 0;
  std::size_t count_ = 0;
};

}  // namespace kvroof::suite
