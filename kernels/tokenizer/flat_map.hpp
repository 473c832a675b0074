// A hash table from 64-bit keys to small values in one block of memory, filled once and then only read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvroof {

template <class Value>
class FlatMap {
 public:
  // Room for `count` entries without growing.
  void reserve(std::size_t count) {
    if (count * 2 > slots_.size()) rehash(std::bit_ceil(count * 2 + 1));
  }

  // The value of a key, made if absent; true when it was made. The reference holds until the next insertion.
  std::pair<Value&, bool> insert(std::uint64_t key, const Value& value) {
    reserve(size_ + 1);
    Slot& slot = slots_[place_of(key)];
    if (slot.used) return {slot.value, false};
    slot = {key, value, true};
    ++size_;
    return {slot.value, true};
  }

  [[nodiscard]] const Value* find(std::uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place_of(key)];
    return slot.used ? &slot.value : nullptr;
  }

  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Value value{};
    bool used = false;
  };

  // Where the key is or would be; at most half of the slots are used, so the search ends.
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const {
    const std::uint64_t mixed = key * 0x9E3779B97F4A7C15U;
    std::size_t at = static_cast<std::size_t>(mixed ^ mixed >> 32) & (slots_.size() - 1);
    while (slots_[at].used && slots_[at].key != key) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void rehash(std::size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.used) slots_[place_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
};

}  // namespace kvroof
