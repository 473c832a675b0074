#include "kernels/cpu/kv_cache.hpp"

#include <cstring>

#include "sim/core/error.hpp"

namespace kvroof {
namespace {

std::vector<std::size_t> sums_before(std::span<const std::uint32_t> capacities) {
  std::vector<std::size_t> starts = {0};
  for (const std::uint32_t capacity : capacities) starts.push_back(starts.back() + capacity);
  return starts;
}

}  // namespace

KvCache::KvCache(const KvLayout& layout, std::uint32_t capacity)
    : KvCache(layout, std::vector<std::uint32_t>(layout.heads, capacity)) {}

KvCache::KvCache(const KvLayout& layout, std::span<const std::uint32_t> capacities)
    : layout_(layout),
      starts_(sums_before(capacities)),
      keys_(starts_.back() * layout.k_width * size_of(layout.type)),
      values_(starts_.back() * layout.stored_v_width() * size_of(layout.type)) {
  check(capacities.size() == layout.heads, "KvCache: a capacity for each head");
  check(!layout.v_in_k || layout.v_width <= layout.k_width, "KvCache: v is a part of k");
}

std::size_t KvCache::k_offset(HeadId head, SlotId slot) const {
  return (starts_[head.value] + slot.value) * layout_.k_width * size_of(layout_.type);
}

std::size_t KvCache::v_offset(HeadId head, SlotId slot) const {
  return (starts_[head.value] + slot.value) * layout_.stored_v_width() * size_of(layout_.type);
}

RowsView KvCache::keys(HeadId head, std::uint32_t count) const {
  check(head.value < layout_.heads && count <= capacity(head), "KvCache: rows within the allocated slots");
  return {keys_.data() + k_offset(head, SlotId(0)), layout_.type, layout_.k_width, layout_.k_width, count};
}

RowsView KvCache::values(HeadId head, std::uint32_t count) const {
  check(head.value < layout_.heads && count <= capacity(head), "KvCache: rows within the allocated slots");
  if (layout_.v_in_k) {
    return {keys_.data() + k_offset(head, SlotId(0)), layout_.type, layout_.k_width, layout_.v_width, count};
  }
  return {values_.data() + v_offset(head, SlotId(0)), layout_.type, layout_.v_width, layout_.v_width, count};
}

std::uint64_t KvCache::store(HeadId head, SlotId slot, std::span<const float> k, std::span<const float> v) {
  check(slot.value < capacity(head) && k.size() == layout_.k_width && v.size() == layout_.v_width,
        "KvCache: a row in a slot");
  convert_from_float(layout_.type, k, keys_.data() + k_offset(head, slot));
  if (!layout_.v_in_k) convert_from_float(layout_.type, v, values_.data() + v_offset(head, slot));
  return layout_.row_bytes();
}

std::uint64_t KvCache::copy(HeadId head, const KvCache& from, std::span<const SlotMove> moves) {
  std::uint64_t moved = 0;
  for (const SlotMove& move : moves) {
    check(move.from.value < from.capacity(head) && move.to.value < capacity(head),
          "KvCache: moves within the allocated slots");
    copy_rows(head, move.to, from, move.from, 1);
    moved += 2 * layout_.row_bytes();
  }
  return moved;
}

std::uint64_t KvCache::merge(HeadId head, std::span<const RowMerge> merges) {
  for (const RowMerge& m : merges) {
    check(m.from < capacity(head) && m.to < capacity(head), "KvCache: merges within the allocated slots");
    merge_row(layout_.type, layout_.k_width, m, keys_.data() + k_offset(head, SlotId(m.from)),
              keys_.data() + k_offset(head, SlotId(m.to)));
    if (layout_.v_in_k) continue;
    merge_row(layout_.type, layout_.v_width, m, values_.data() + v_offset(head, SlotId(m.from)),
              values_.data() + v_offset(head, SlotId(m.to)));
  }
  return merges.size() * 2 * layout_.row_bytes();
}

void KvCache::grow(HeadId head, std::uint32_t slots) {
  check(slots >= capacity(head), "KvCache: it never shrinks");
  std::vector<std::uint32_t> capacities;
  for (std::uint32_t h = 0; h < layout_.heads; ++h) {
    capacities.push_back(h == head.value ? slots : capacity(HeadId(h)));
  }
  KvCache larger(layout_, capacities);
  for (std::uint32_t h = 0; h < layout_.heads; ++h) {
    if (capacity(HeadId(h)) > 0) larger.copy_rows(HeadId(h), SlotId(0), *this, SlotId(0), capacity(HeadId(h)));
  }
  *this = std::move(larger);
}

void KvCache::copy_rows(HeadId head, SlotId to, const KvCache& from, SlotId first, std::size_t count) {
  std::memmove(keys_.data() + k_offset(head, to), from.keys_.data() + from.k_offset(head, first),
               count * layout_.k_width * size_of(layout_.type));
  if (layout_.v_in_k) return;
  std::memmove(values_.data() + v_offset(head, to), from.values_.data() + from.v_offset(head, first),
               count * layout_.v_width * size_of(layout_.type));
}

}  // namespace kvroof
