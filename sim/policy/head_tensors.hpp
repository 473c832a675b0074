// HeadTensors: the rows of k, v and q of one storage head, for policies that score tokens by them.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sim/attention/attention.hpp"
#include "sim/core/ids.hpp"
#include "sim/model/rotary.hpp"

namespace kvroof {

struct SlotMove;

// Where the rows of one storage head lie.
struct HeadRows {
  RowsView keys;             // [rows, k_width]
  RowsView values;           // [rows, v_width]
  bool by_position = false;  // row i is that of token i; otherwise that of the token in slot i
  RowsView queries;          // of the prompt's last rows: [count, group · k_width], after rotary embedding
};

// Knows the rows of all heads of a layer: the cache of an engine, or what a trace recorded.
class HeadRowsSource {
 public:
  virtual ~HeadRowsSource() = default;
  [[nodiscard]] virtual HeadRows rows(HeadId head) const = 0;
};

// Row `to` becomes kept · itself + added · row `from`, both numbered as in HeadRows.
struct RowMerge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  float kept = 1;
  float added = 0;
};

// The same for one row of k or of v, in float and then rounded to its type.
void merge_row(DType type, std::size_t width, const RowMerge& merge, const std::byte* from, std::byte* to);

// What a policy is shown when it is asked to evict, if its traits ask for it. Rows come as float, each exactly as the
// cache holds it, and what was read is counted.
class HeadTensors {
 public:
  // Memory that outlives the object, so that an eviction allocates nothing.
  struct Scratch {
    std::vector<std::uint32_t> row_of_slot, origin;
  };
  // Slot s holds positions[s]. `moves` were planned for this head and have not been applied to its rows.
  HeadTensors(const HeadRows& rows, std::span<const TokenPos> positions, std::span<const SlotMove> moves,
              Scratch& scratch);

  // Of the slots in this order: [order.size(), k_width], or [.., v_width].
  void read_keys(std::span<const SlotId> order, std::vector<float>& out);
  void read_values(std::span<const SlotId> order, std::vector<float>& out);
  // Of the last `count` prompt rows, or of all that there are if there are fewer: [rows, group, k_width], ascending.
  void read_queries(std::uint32_t count, std::vector<float>& out);
  // Arithmetic that the policy did with the rows.
  void count_flops(double flops) { flops_ += flops; }

  // Which of the rows is that of the slot.
  [[nodiscard]] std::uint32_t row_of(SlotId slot) const { return row_of_slot_[slot.value]; }
  [[nodiscard]] std::size_t key_width() const { return rows_.keys.width; }
  [[nodiscard]] std::size_t value_width() const { return rows_.values.width; }
  [[nodiscard]] std::uint64_t elements_read() const { return elements_read_; }
  [[nodiscard]] double flops() const { return flops_; }

 private:
  void read(const RowsView& rows, std::span<const SlotId> order, std::vector<float>& out);

  HeadRows rows_;
  std::vector<std::uint32_t>& row_of_slot_;
  std::uint64_t elements_read_ = 0;
  double flops_ = 0;
};

// The slots in the order of their tokens, oldest first.
void slots_by_age(std::span<const TokenPos> positions, std::vector<SlotId>& order);

// How rotary embedding turned q and k of a layer in one sequence.
struct LayerRotation {
  const RotaryRule* rule = nullptr;  // null: it did not
  std::uint32_t first = 0;           // first rotated element
  bool long_table = false;           // the sequence took the rule's second table

  [[nodiscard]] std::span<const float> frequencies() const;
  // The two elements of pair i.
  [[nodiscard]] std::pair<std::size_t, std::size_t> elements(std::size_t pair) const;
};

// Undoes the rotation, and its magnitude, of rows of q or k at `position`: [rows, width].
void undo_rotation(const LayerRotation& rotation, TokenPos position, std::size_t width, std::span<float> rows);

}  // namespace kvroof
