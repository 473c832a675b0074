#include "kernels/cpu/kv_cache.hpp"

#include <cstring>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

AlignedBytes rows_memory(const KvLayout& layout, std::uint32_t capacity, std::uint32_t width) {
  return AlignedBytes(std::size_t{layout.heads} * capacity * width * size_of(layout.type));
}

}  // namespace

KvCache::KvCache(const KvLayout& layout, std::uint32_t capacity)
    : layout_(layout),
      capacity_(capacity),
      keys_(rows_memory(layout, capacity, layout.k_width)),
      values_(rows_memory(layout, capacity, layout.v_width)) {}

std::size_t KvCache::k_offset(HeadId head, SlotId slot) const {
  return (std::size_t{head.value} * capacity_ + slot.value) * layout_.k_width * size_of(layout_.type);
}

std::size_t KvCache::v_offset(HeadId head, SlotId slot) const {
  return (std::size_t{head.value} * capacity_ + slot.value) * layout_.v_width * size_of(layout_.type);
}

RowsView KvCache::keys(HeadId head, std::uint32_t count) const {
  check(count <= capacity_ && head.value < layout_.heads, "KvCache: rows within the allocated slots");
  return {keys_.data() + k_offset(head, SlotId(0)), layout_.type, layout_.k_width, layout_.k_width, count};
}

RowsView KvCache::values(HeadId head, std::uint32_t count) const {
  check(count <= capacity_ && head.value < layout_.heads, "KvCache: rows within the allocated slots");
  return {values_.data() + v_offset(head, SlotId(0)), layout_.type, layout_.v_width, layout_.v_width, count};
}

std::uint64_t KvCache::store(HeadId head, SlotId slot, std::span<const float> k, std::span<const float> v) {
  check(slot.value < capacity_ && k.size() == layout_.k_width && v.size() == layout_.v_width,
        "KvCache: a row in a slot");
  convert_from_float(layout_.type, k, keys_.data() + k_offset(head, slot));
  convert_from_float(layout_.type, v, values_.data() + v_offset(head, slot));
  return (k.size() + v.size()) * size_of(layout_.type);
}

std::uint64_t KvCache::copy(HeadId head, const KvCache& from, std::span<const SlotMove> moves) {
  const std::size_t k_bytes = layout_.k_width * size_of(layout_.type);
  const std::size_t v_bytes = layout_.v_width * size_of(layout_.type);
  std::uint64_t moved = 0;
  for (const SlotMove& move : moves) {
    check(move.from.value < from.capacity_ && move.to.value < capacity_, "KvCache: moves within the allocated slots");
    std::memmove(keys_.data() + k_offset(head, move.to), from.keys_.data() + from.k_offset(head, move.from), k_bytes);
    std::memmove(values_.data() + v_offset(head, move.to), from.values_.data() + from.v_offset(head, move.from),
                 v_bytes);
    moved += 2 * (k_bytes + v_bytes);
  }
  return moved;
}

void KvCache::grow(std::uint32_t capacity) {
  check(capacity >= capacity_, "KvCache: it never shrinks");
  KvCache larger(layout_, capacity);
  const std::size_t k_bytes = std::size_t{capacity_} * layout_.k_width * size_of(layout_.type);
  const std::size_t v_bytes = std::size_t{capacity_} * layout_.v_width * size_of(layout_.type);
  for (std::uint32_t h = 0; h < layout_.heads && capacity_ > 0; ++h) {
    const HeadId head(h);
    std::memcpy(larger.keys_.data() + larger.k_offset(head, SlotId(0)), keys_.data() + k_offset(head, SlotId(0)),
                k_bytes);
    std::memcpy(larger.values_.data() + larger.v_offset(head, SlotId(0)), values_.data() + v_offset(head, SlotId(0)),
                v_bytes);
  }
  *this = std::move(larger);
}

}  // namespace kvroof
