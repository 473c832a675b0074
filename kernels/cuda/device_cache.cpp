#include "kernels/cuda/device_cache.hpp"

namespace kvroof::cuda {

DeviceCache::DeviceCache(const ModelShape& shape, std::uint32_t storage_heads, std::uint32_t capacity)
    : heads_(storage_heads),
      capacity_(capacity),
      key_bytes_(cache_row_bytes(shape.head_dim)),
      value_bytes_(cache_row_bytes(shape.v_head_dim)),
      buffer_(std::size_t{storage_heads} * capacity * (key_bytes_ + value_bytes_ + sizeof(std::uint32_t))) {}

void DeviceCache::append_slots(std::vector<CacheSlots>& out, std::uint32_t first) const {
  for (std::uint32_t h = 0; h < heads_; ++h) out.push_back(slots(h, first));
}

CacheSlots DeviceCache::slots(std::uint32_t head, std::uint32_t slot) const {
  const std::size_t all = std::size_t{heads_} * capacity_;
  const std::size_t first = std::size_t{head} * capacity_ + slot;
  CacheSlots slots;
  slots.keys = buffer_.at(first * key_bytes_);
  slots.values = buffer_.at(all * key_bytes_ + first * value_bytes_);
  slots.positions = buffer_.at<std::uint32_t>(all * (key_bytes_ + value_bytes_) + first * sizeof(std::uint32_t));
  return slots;
}

}  // namespace kvroof::cuda
