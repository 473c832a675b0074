// Small tables that a launch reads: gathered on the host, sent to the device in one copy.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"

namespace kvroof::cuda {

class DeviceTables {
 public:
  // The tables live in `buffer` until its next use.
  DeviceTables(Stream& stream, DeviceBuffer& buffer) : stream_(stream), buffer_(buffer) {}

  // Where the table will be on the device: valid after send().
  template <class T>
  std::size_t add(std::span<const T> table) {
    const std::size_t at = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(at + table.size_bytes());
    std::memcpy(bytes_.data() + at, table.data(), table.size_bytes());
    return at;
  }
  void send() {
    buffer_.reserve(bytes_.size());
    copy_to_device(stream_, buffer_.at(), bytes_);
    // The host's memory may go before the copy has been made.
    check_device(synchronize(stream_), "sending tables");
  }
  template <class T>
  [[nodiscard]] const T* at(std::size_t place) const {
    return buffer_.at<T>(place);
  }

 private:
  static constexpr std::size_t kAlignment = 16;
  Stream& stream_;
  DeviceBuffer& buffer_;
  std::vector<std::byte> bytes_;
};

}  // namespace kvroof::cuda
