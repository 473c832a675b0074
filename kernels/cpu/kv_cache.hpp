// The k and v rows of one layer of one sequence: slots of each storage head in the cache's type.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/engine/weight.hpp"
#include "sim/core/ids.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

// What all caches of a run have in common.
struct KvLayout {
  DType type = DType::kF32;
  std::uint32_t heads = 1;    // storage heads
  std::uint32_t k_width = 0;  // elements of a row of k
  std::uint32_t v_width = 0;
  bool v_in_k = false;  // the leading v_width elements of a row of k are its v (latent attention): nothing else is kept

  // Elements of v that are kept beside k.
  [[nodiscard]] std::uint32_t stored_v_width() const { return v_in_k ? 0 : v_width; }
  // k and v of one token in one storage head.
  [[nodiscard]] std::uint64_t row_bytes() const { return (std::uint64_t{k_width} + stored_v_width()) * size_of(type); }
};

// Which token lies in which slot is the policy's business (LayerPolicy); this is the memory. Functions that touch rows
// return the bytes they moved, from the length of what was copied.
class KvCache {
 public:
  KvCache() = default;
  // Memory for `capacity` slots of every head.
  KvCache(const KvLayout& layout, std::uint32_t capacity);
  // Memory for capacities[h] slots of head h.
  KvCache(const KvLayout& layout, std::span<const std::uint32_t> capacities);

  // Slots of a head; 0 without memory.
  [[nodiscard]] std::uint32_t capacity(HeadId head) const {
    return starts_.empty() ? 0 : static_cast<std::uint32_t>(starts_[head.value + 1] - starts_[head.value]);
  }
  [[nodiscard]] std::uint64_t allocated_bytes() const { return keys_.size() + values_.size(); }

  // The first `count` slots of a head.
  [[nodiscard]] RowsView keys(HeadId head, std::uint32_t count) const;
  [[nodiscard]] RowsView values(HeadId head, std::uint32_t count) const;

  // Rounds a row of floats to the cache's type and writes it; bytes written. Where v lies in k, k alone is written.
  std::uint64_t store(HeadId head, SlotId slot, std::span<const float> k, std::span<const float> v);
  // Copies rows of `from` (this cache or another of the same layout) in the order given; bytes read and written.
  std::uint64_t copy(HeadId head, const KvCache& from, std::span<const SlotMove> moves);
  // Merges rows in the order given; bytes of the rows that change, read and written.
  std::uint64_t merge(HeadId head, std::span<const RowMerge> merges);
  // Makes room for more slots of a head, keeping all rows.
  void grow(HeadId head, std::uint32_t slots);

 private:
  [[nodiscard]] std::size_t k_offset(HeadId head, SlotId slot) const;
  [[nodiscard]] std::size_t v_offset(HeadId head, SlotId slot) const;
  void copy_rows(HeadId head, SlotId to, const KvCache& from, SlotId first, std::size_t count);

  KvLayout layout_;
  std::vector<std::size_t> starts_;  // [heads + 1]: slots before each head's
  AlignedBytes keys_;                // [slots of all heads][k_width]
  AlignedBytes values_;              // [slots of all heads][v_width]; empty where v lies in k
};

}  // namespace kvroof
