#include "kernels/cpu/kv_cache.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "sim/core/error.hpp"
#include "sim/core/kv_quantizer.hpp"

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
      keys_(starts_.back() * layout.k_width * size_of(layout.type.rows())),
      values_(starts_.back() * layout.stored_v_width() * size_of(layout.type.rows())),
      aged_(layout.type.by_age() ? starts_.back() : 0) {
  check(capacities.size() == layout.heads, "KvCache: a capacity for each head");
  check(!layout.v_in_k || layout.v_width <= layout.k_width, "KvCache: v is a part of k");
}

std::size_t KvCache::k_offset(HeadId head, SlotId slot) const {
  return (starts_[head.value] + slot.value) * layout_.k_width * size_of(layout_.type.rows());
}

std::size_t KvCache::v_offset(HeadId head, SlotId slot) const {
  return (starts_[head.value] + slot.value) * layout_.stored_v_width() * size_of(layout_.type.rows());
}

RowsView KvCache::keys(HeadId head, std::uint32_t count) const {
  check(head.value < layout_.heads && count <= capacity(head), "KvCache: rows within the allocated slots");
  return {keys_.data() + k_offset(head, SlotId(0)), layout_.type.rows(), layout_.k_width, layout_.k_width, count};
}

RowsView KvCache::values(HeadId head, std::uint32_t count) const {
  check(head.value < layout_.heads && count <= capacity(head), "KvCache: rows within the allocated slots");
  if (layout_.v_in_k) {
    return {keys_.data() + k_offset(head, SlotId(0)), layout_.type.rows(), layout_.k_width, layout_.v_width, count};
  }
  return {values_.data() + v_offset(head, SlotId(0)), layout_.type.rows(), layout_.v_width, layout_.v_width, count};
}

std::uint64_t KvCache::store(HeadId head, SlotId slot, std::span<const float> k, std::span<const float> v,
                             TokenPos position) {
  check(slot.value < capacity(head) && k.size() == layout_.k_width && v.size() == layout_.v_width,
        "KvCache: a row in a slot");
  convert_from_float(layout_.type.rows(), k, keys_.data() + k_offset(head, slot));
  if (!layout_.v_in_k) convert_from_float(layout_.type.rows(), v, values_.data() + v_offset(head, slot));
  if (layout_.type.by_age()) aged_slots(head)[slot.value] = {position.value, true, false, false};
  return layout_.row_bytes();
}

void KvCache::age_key_group(HeadId head, std::span<const SlotId> slots) {
  const std::size_t width = layout_.k_width;
  const DType rows = layout_.type.rows();
  std::vector<float> keys(slots.size() * width);
  const auto row = [&](std::size_t i) { return std::span(keys).subspan(i * width, width); };
  for (std::size_t i = 0; i < slots.size(); ++i) {
    convert_to_float(rows, keys_.data() + k_offset(head, slots[i]), row(i));
  }
  round_trip_aged_keys(layout_.type, keys, width);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    convert_from_float(rows, row(i), keys_.data() + k_offset(head, slots[i]));
    aged_slots(head)[slots[i].value].key = true;
  }
}

void KvCache::age_value(HeadId head, SlotId slot) {
  std::vector<float> value(layout_.v_width);
  std::byte* const at = values_.data() + v_offset(head, slot);
  convert_to_float(layout_.type.rows(), at, value);
  round_trip_aged_value(layout_.type, value);
  convert_from_float(layout_.type.rows(), value, at);
}

AgedRows KvCache::age(HeadId head, std::span<const TokenPos> held, std::uint32_t tokens) {
  std::set<std::uint32_t> missing;  // held, and not found yet: after a move a row lies in two slots
  for (const TokenPos position : held) missing.insert(position.value);
  std::map<std::uint32_t, std::vector<SlotId>> groups;  // of keys that leave the window
  AgedRows converted;
  const std::span<Aged> slots = aged_slots(head);
  for (std::uint32_t s = 0; s < slots.size(); ++s) {
    Aged& aged = slots[s];
    aged.used = aged.used && missing.erase(aged.position) > 0;
    if (!aged.used) continue;
    if (!aged.key && aged.position < kivi_packed_keys(tokens)) groups[aged.position / kKiviGroup].emplace_back(s);
    if (aged.value || aged.position >= kivi_packed_values(tokens) || layout_.v_in_k) continue;
    age_value(head, SlotId(s));
    aged.value = true;
    converted.values16 += 1;
    converted.packed_values += 1;
  }
  check(missing.empty(), "KvCache: a slot for every token that is held");
  for (const auto& [group, members] : groups) {
    age_key_group(head, members);
    converted.keys16 += members.size();
    converted.packed_keys += kKiviGroup;
  }
  return converted;
}

AgedRows KvCache::aged_rows(HeadId head) const {
  const SlotRun all{0, capacity(head)};
  return aged_rows(head, {&all, 1});
}

AgedRows KvCache::aged_rows(HeadId head, std::span<const SlotRun> runs) const {
  std::set<std::uint32_t> groups;
  AgedRows rows;
  for (const SlotRun& run : runs) {
    for (const Aged& aged : std::span(aged_).subspan(starts_[head.value] + run.first, run.count)) {
      if (!aged.used) continue;
      if (aged.key) groups.insert(aged.position / kKiviGroup);
      rows.keys16 += aged.key ? 0U : 1U;
      (aged.value ? rows.packed_values : rows.values16) += 1;
    }
  }
  rows.packed_keys = groups.size() * kKiviGroup;
  return rows;
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
    merge_row(layout_.type.rows(), layout_.k_width, m, keys_.data() + k_offset(head, SlotId(m.from)),
              keys_.data() + k_offset(head, SlotId(m.to)));
    if (layout_.v_in_k) continue;
    merge_row(layout_.type.rows(), layout_.v_width, m, values_.data() + v_offset(head, SlotId(m.from)),
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
               count * layout_.k_width * size_of(layout_.type.rows()));
  if (layout_.type.by_age()) {
    std::copy_n(from.aged_.begin() + static_cast<std::ptrdiff_t>(from.starts_[head.value] + first.value), count,
                aged_.begin() + static_cast<std::ptrdiff_t>(starts_[head.value] + to.value));
  }
  if (layout_.v_in_k) return;
  std::memmove(values_.data() + v_offset(head, to), from.values_.data() + from.v_offset(head, first),
               count * layout_.v_width * size_of(layout_.type.rows()));
}

}  // namespace kvroof
