// The KV cache of one (sequence, layer) on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device_buffer.hpp"

namespace kvroof::cuda {

constexpr std::uint32_t bits_of_stored(Stored type) {
  return type == Stored::kInt8 ? 8 : type == Stored::kInt4 ? 4 : 16;
}

// What all caches of a run have in common.
struct CacheFormat {
  Stored type = Stored::kBF16;
  std::uint32_t key_dim = 0;  // elements of a row of k, a multiple of 8
  std::uint32_t value_dim = 0;
  std::uint32_t state_columns = 0;  // of 4 bytes, that a policy keeps for each slot
  bool v_in_k = false;  // latent attention: the leading value_dim elements of a row of k are its v, and v has no rows

  // From one row to the next; kernels read 16 bytes at once.
  [[nodiscard]] std::uint32_t key_row_bytes() const { return row_bytes(key_dim); }
  [[nodiscard]] std::uint32_t value_row_bytes() const { return row_bytes(stored_value_dim()); }
  [[nodiscard]] std::uint32_t stored_value_dim() const { return v_in_k ? 0 : value_dim; }
  [[nodiscard]] bool has_scales() const { return bits_of_stored(type) < 16; }
  // Of all that lies beside a slot of one storage head: rows, position, scales, state.
  [[nodiscard]] std::uint64_t slot_bytes() const {
    const std::uint64_t words = 1 + scales() + state_columns;
    return key_row_bytes() + value_row_bytes() + words * sizeof(std::uint32_t);
  }
  // Of one token's k and v in one storage head that attention must read, scales included.
  [[nodiscard]] std::uint64_t token_bytes() const {
    return (std::uint64_t{key_dim} + stored_value_dim()) * bits_of_stored(type) / 8 + scales() * sizeof(float);
  }

 private:
  [[nodiscard]] std::uint32_t row_bytes(std::uint32_t dim) const {
    return (dim * bits_of_stored(type) + 127) / 128 * 16;
  }
  [[nodiscard]] std::uint32_t scales() const { return !has_scales() ? 0 : v_in_k ? 1 : 2; }
};

// The slots of all storage heads of one (sequence, layer).
class DeviceCache {
 public:
  DeviceCache() = default;
  // Memory for capacities[h] slots of storage head h.
  DeviceCache(const CacheFormat& format, std::span<const std::uint32_t> capacities);

  [[nodiscard]] std::uint32_t heads() const { return static_cast<std::uint32_t>(starts_.size()) - 1; }
  // Slots of a head; 0 without memory.
  [[nodiscard]] std::uint32_t capacity(std::uint32_t head = 0) const {
    return heads() == 0 ? 0 : starts_[head + 1] - starts_[head];
  }
  [[nodiscard]] CacheSlots slots(std::uint32_t head, std::uint32_t first = 0) const;  // from slot `first` on
  void append_slots(std::vector<CacheSlots>& out, std::uint32_t first = 0) const;     // of every head
  [[nodiscard]] std::uint64_t bytes() const { return buffer_.bytes(); }

 private:
  CacheFormat format_;
  std::vector<std::uint32_t> starts_{0};  // [heads + 1]: slots before each head's
  // keys, values, positions, scales of k and of v, policy state, of all heads each; last, the heads' next slots
  DeviceBuffer buffer_;
};

}  // namespace kvroof::cuda
