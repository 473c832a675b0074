// The k and v rows of one layer of one sequence: slots of each storage head in the cache's type.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/engine/ops.hpp"
#include "kernels/engine/weight.hpp"
#include "sim/core/ids.hpp"
#include "sim/core/kv_type.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

// What all caches of a run have in common. A quantised cache keeps in memory what its codes and scales give back, in a
// type that holds it exactly; its bytes are counted as the codes and scales would take them.
struct KvLayout {
  KvType type = DType::kF32;
  std::uint32_t heads = 1;    // storage heads
  std::uint32_t k_width = 0;  // elements of a row of k
  std::uint32_t v_width = 0;
  bool v_in_k = false;  // the leading v_width elements of a row of k are its v (latent attention): nothing else is kept

  // Elements of v that are kept beside k.
  [[nodiscard]] std::uint32_t stored_v_width() const { return v_in_k ? 0 : v_width; }
  // k and v of one token in one storage head as they are written: with a residual window, in float16.
  [[nodiscard]] std::uint64_t row_bytes() const {
    const KvType written = type.by_age() ? KvType(type.rows()) : type;
    return (written.row(k_width) + written.row(stored_v_width())).total();
  }
};

// Which token lies in which slot is the policy's business (LayerPolicy); this is the memory. Functions that touch rows
// return the bytes they moved.
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
  [[nodiscard]] std::uint64_t allocated_bytes() const {
    return starts_.empty() ? 0 : starts_.back() * layout_.row_bytes();
  }

  // The first `count` slots of a head.
  [[nodiscard]] RowsView keys(HeadId head, std::uint32_t count) const;
  [[nodiscard]] RowsView values(HeadId head, std::uint32_t count) const;

  // Writes a row of floats, which a quantised cache has rounded (round_trip_row), and others round here; bytes written.
  // Where v lies in k, k alone is written. A cache with a residual window must know the token's position.
  std::uint64_t store(HeadId head, SlotId slot, std::span<const float> k, std::span<const float> v,
                      TokenPos position = {});
  // Of a cache with a residual window, after `tokens` tokens, of which this head holds `held`: forgets the others and
  // quantises what has left the window. Rows read and written.
  AgedRows age(HeadId head, std::span<const TokenPos> held, std::uint32_t tokens);
  // And what it keeps of the head's rows then, or of some of its slots.
  [[nodiscard]] AgedRows aged_rows(HeadId head) const;
  [[nodiscard]] AgedRows aged_rows(HeadId head, std::span<const SlotRun> runs) const;
  // Copies rows of `from` (this cache or another of the same layout) in the order given; bytes read and written.
  std::uint64_t copy(HeadId head, const KvCache& from, std::span<const SlotMove> moves);
  // Merges rows in the order given; bytes of the rows that change, read and written.
  std::uint64_t merge(HeadId head, std::span<const RowMerge> merges);
  // Makes room for more slots of a head, keeping all rows.
  void grow(HeadId head, std::uint32_t slots);

 private:
  [[nodiscard]] std::size_t k_offset(HeadId head, SlotId slot) const;
  [[nodiscard]] std::size_t v_offset(HeadId head, SlotId slot) const;
  void age_value(HeadId head, SlotId slot);
  void age_key_group(HeadId head, std::span<const SlotId> slots);
  void copy_rows(HeadId head, SlotId to, const KvCache& from, SlotId first, std::size_t count);

  KvLayout layout_;
  std::vector<std::size_t> starts_;  // [heads + 1]: slots before each head's
  AlignedBytes keys_;                // [slots of all heads][k_width]
  AlignedBytes values_;              // [slots of all heads][v_width]; empty where v lies in k
  struct Aged {
    std::uint32_t position = 0;
    bool used = false, key = false, value = false;  // whether k and v are quantised
  };
  [[nodiscard]] std::span<Aged> aged_slots(HeadId head) {
    return std::span(aged_).subspan(starts_[head.value], capacity(head));
  }
  std::vector<Aged> aged_;           // [slots of all heads], of a cache with a residual window
};

}  // namespace kvroof
