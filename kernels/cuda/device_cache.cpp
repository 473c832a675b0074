#include "kernels/cuda/device_cache.hpp"

namespace kvroof::cuda {
DeviceCache::DeviceCache(const CacheFormat& format, std::uint32_t storage_heads, std::uint32_t capacity)
    : format_(format),
      heads_(storage_heads),
      capacity_(capacity),
      buffer_(std::size_t{storage_heads} * (capacity * format.slot_bytes() + sizeof(std::uint32_t))) {}

void DeviceCache::append_slots(std::vector<CacheSlots>& out, std::uint32_t first) const {
  for (std::uint32_t h = 0; h < heads_; ++h) out.push_back(slots(h, first));
}

CacheSlots DeviceCache::slots(std::uint32_t head, std::uint32_t slot) const {
  const std::size_t all = std::size_t{heads_} * capacity_;
  const std::size_t first = std::size_t{head} * capacity_ + slot;
  std::size_t at = 0;
  const auto place = [&]<class T>(T*& out, std::size_t bytes_of_slot) {
    out = buffer_.at<T>(at + first * bytes_of_slot);
    at += all * bytes_of_slot;
  };
  CacheSlots slots;
  place(slots.keys, format_.key_row_bytes());
  place(slots.values, format_.value_row_bytes());
  place(slots.positions, sizeof(std::uint32_t));
  if (format_.has_scales()) {
    place(slots.key_scales, sizeof(float));
    place(slots.value_scales, sizeof(float));
  }
  // A head's columns lie behind each other, so that its slots are neighbours in each.
  slots.state = buffer_.at<std::uint32_t>(at) + std::size_t{head} * capacity_ * format_.state_columns + slot;
  at += all * format_.state_columns * sizeof(std::uint32_t);
  slots.stride = capacity_;
  slots.next = buffer_.at<std::uint32_t>(at) + head;
  return slots;
}

}  // namespace kvroof::cuda
