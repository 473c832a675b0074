// The k and v rows of one layer of one sequence: storage heads × slots in the cache's type.
#pragma once

#include <cstdint>
#include <span>

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

  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] std::uint64_t allocated_bytes() const { return keys_.size() + values_.size(); }

  // The first `count` slots of a head.
  [[nodiscard]] RowsView keys(HeadId head, std::uint32_t count) const;
  [[nodiscard]] RowsView values(HeadId head, std::uint32_t count) const;

  // Rounds a row of floats to the cache's type and writes it; bytes written. Where v lies in k, k alone is written.
  std::uint64_t store(HeadId head, SlotId slot, std::span<const float> k, std::span<const float> v);
  // Copies rows of `from` (this cache or another of the same layout) in the order given; bytes read and written.
  std::uint64_t copy(HeadId head, const KvCache& from, std::span<const SlotMove> moves);
  // Makes room for more slots, keeping all rows.
  void grow(std::uint32_t capacity);

 private:
  [[nodiscard]] std::size_t k_offset(HeadId head, SlotId slot) const;
  [[nodiscard]] std::size_t v_offset(HeadId head, SlotId slot) const;
  void copy_rows(HeadId head, SlotId to, const KvCache& from, SlotId first, std::size_t count);

  KvLayout layout_;
  std::uint32_t capacity_ = 0;
  AlignedBytes keys_;    // [heads][capacity][k_width]
  AlignedBytes values_;  // [heads][capacity][v_width]; empty where v lies in k
};

}  // namespace kvroof
