// The KV cache of one (sequence, layer) on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"
#include "sim/model/model_shape.hpp"

namespace kvroof::cuda {

// Bytes from one 16-bit row of so many elements to the next.
constexpr std::uint32_t cache_row_bytes(std::uint32_t width) { return (width * 2 + 15) / 16 * 16; }

// The slots of all storage heads of one (sequence, layer).
class DeviceCache {
 public:
  DeviceCache() = default;
  DeviceCache(const ModelShape& shape, std::uint32_t storage_heads, std::uint32_t capacity);

  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] CacheSlots slots(std::uint32_t head, std::uint32_t first = 0) const;  // from slot `first` on
  void append_slots(std::vector<CacheSlots>& out, std::uint32_t first = 0) const;     // of every head
  [[nodiscard]] std::uint64_t bytes() const { return buffer_.bytes(); }

 private:
  std::uint32_t heads_ = 0, capacity_ = 0, key_bytes_ = 0, value_bytes_ = 0;
  DeviceBuffer buffer_;  // keys, values, positions of all heads
};

}  // namespace kvroof::cuda
