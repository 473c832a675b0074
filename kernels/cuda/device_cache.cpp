#include "kernels/cuda/device_cache.hpp"

namespace kvroof::cuda {

DeviceCache::DeviceCache(const CacheFormat& format, std::span<const std::uint32_t> capacities)
    : format_(format) {
  for (const std::uint32_t capacity : capacities) starts_.push_back(starts_.back() + capacity);
  buffer_ = DeviceBuffer(starts_.back() * format.slot_bytes() + capacities.size() * sizeof(std::uint32_t));
}

void DeviceCache::append_slots(std::vector<CacheSlots>& out, std::uint32_t first) const {
  for (std::uint32_t h = 0; h + 1 < starts_.size(); ++h) out.push_back(slots(h, first));
}

CacheSlots DeviceCache::slots(std::uint32_t head, std::uint32_t slot) const {
  const std::size_t all = starts_.back();
  const std::size_t first = std::size_t{starts_[head]} + slot;
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
    slots.value_scales = slots.key_scales;
    if (!format_.v_in_k) place(slots.value_scales, sizeof(float));
  }
  // A head's columns lie behind each other, so that its slots are neighbours in each.
  slots.state = buffer_.at<std::uint32_t>(at) + std::size_t{starts_[head]} * format_.state_columns + slot;
  at += all * format_.state_columns * sizeof(std::uint32_t);
  slots.stride = capacity(head);
  slots.next = buffer_.at<std::uint32_t>(at) + head;
  return slots;
}

}  // namespace kvroof::cuda
