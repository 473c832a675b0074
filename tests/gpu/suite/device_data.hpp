// Test data on both sides: random numbers in a stored type, what the kernel must read from them, and their copy on the
// device.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/measure/cold_memory.hpp"
#include "sim/core/dtype.hpp"
#include "tests/gpu/suite/report.hpp"

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

// Memory full of 0xff: every float in it is a NaN.
inline cuda::DeviceBuffer poisoned(cuda::Stream& stream, std::size_t bytes) {
  return cuda::uploaded(stream, std::vector<std::byte>(bytes, std::byte{0xff}));
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
    const double distance = std::abs(got - expected);
    const double difference = std::isfinite(distance) ? distance : std::numeric_limits<double>::infinity();
    if (difference > worst_ || count_ == 0) {
      worst_ = difference;
      at_ = {{"element", count_}, {"got", got}, {"expected", expected}};
    }
    not_numbers_ += std::isfinite(got) ? 0 : 1;
    ++count_;
  }
  [[nodiscard]] double relative() const { return largest_ > 0 ? worst_ / largest_ : worst_; }
  // Where that is: the element, counted in the order of comparison, what was got there and what was expected; of how
  // many, and how many of all are no numbers.
  [[nodiscard]] Json worst() const {
    Json json = at_;
    json["of"] = count_;
    json["not_numbers"] = not_numbers_;
    return json;
  }

 private:
  double largest_ = 0, worst_ = 0;
  std::size_t count_ = 0, not_numbers_ = 0;
  Json at_ = Json::object();
};

using Deviations = std::vector<std::pair<const char*, Deviation>>;
// {name: relative deviation, …, tolerance, seed of the inputs}, and of those beyond the tolerance where they are worst.
Json results_of(const Deviations& deviations, double tolerance, std::uint64_t seed);

}  // namespace kvroof::suite
