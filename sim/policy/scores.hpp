// What scoring policies share: adding attention to scores, and choosing the lowest scores outside the recent window.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sim/core/aligned_vector.hpp"
#include "sim/core/ids.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

// scores[s] ← keep · scores[s] + reduction over g of rows(g, s).
struct RowsToAdd {
  ScaledRows rows;
  std::uint32_t group = 1;
  GroupReduction reduction = GroupReduction::kSum;
  float keep = 1;
};
void accumulate(const RowsToAdd& rows, std::span<float> scores);
// scores[s] += reduction over g of rows[g · slots + s]; rows is [group][slots], slots = scores.size().
void accumulate(GroupReduction reduction, const float* rows, std::uint32_t group, std::span<float> scores);

// The slots that a policy may give up: those of tokens older than the last `recent`.
struct Candidates {
  std::span<const TokenPos> positions;  // [slots]
  TokenPos newest{};
  std::uint32_t recent = 0;  // at most slots − 1

  [[nodiscard]] bool has(std::size_t slot) const { return positions[slot].value < first_recent(); }
  [[nodiscard]] std::uint32_t first_recent() const { return recent > newest.value ? 0 : newest.value + 1 - recent; }
};

// The candidate with the lowest score, the oldest of equals. Scores are no NaN; there is a candidate.
SlotId lowest(std::span<const float> scores, const Candidates& candidates);

// Appends the `count` candidates with the lowest scores, of equals the oldest; fewer when there are not so many.
void lowest(std::span<const float> scores, const Candidates& candidates, std::uint32_t count,
            std::vector<SlotId>& victims);

// The least score of the candidates in each of a few blocks of slots, lane by lane of a vector; infinity where a lane
// of a block has none.
struct LeastOfBlocks {
  static constexpr std::size_t kBlocks = 8;
  static constexpr std::size_t kMostLanes = 16;
  // Slots of a block: whole vectors.
  static std::size_t block(std::size_t slots, std::size_t lanes) {
    return ((slots + lanes - 1) / lanes + kBlocks - 1) / kBlocks * lanes;
  }
  alignas(kCacheLine) std::array<float, kBlocks * kMostLanes> values;  // [blocks][lanes]
  std::size_t count = 0;  // of the values
};
LeastOfBlocks least_of_blocks(std::span<const float> scores, const Candidates& candidates);
// lowest(), where the blocks are known.
SlotId lowest(std::span<const float> scores, const Candidates& candidates, const LeastOfBlocks& least);

// Appends the slots of tokens before `end` whose scores are below `limit`; false, with any of them, where they are more
// than `most`.
bool slots_below(std::span<const float> scores, std::span<const TokenPos> positions, TokenPos end, float limit,
                 std::size_t most, std::vector<SlotId>& slots);

// How many values are at least `bound`, and their slots, appended in ascending order. No NaN.
std::size_t count_at_least(std::span<const float> values, float bound);
void slots_at_least(std::span<const float> values, float bound, std::vector<SlotId>& slots);
// A bound that n of the values are not below, 1 ≤ n ≤ values.size(); where equals leave none, the n-th largest.
// Found by halving the range of floats, 32 times at most. No NaN.
float bound_of_largest(std::span<const float> values, std::size_t n);

// |a − b| / max(|a|, |b|); 0 for equals.
double relative_gap(double a, double b);

// Columns of values by slot for one storage head, in one allocation that grows with the slots. Memory is taken when
// values are first asked for: a device may keep them instead.
template <class T>
class SlotColumns {
 public:
  explicit SlotColumns(std::uint32_t columns) : columns_(columns) {}

  // Makes room for `slot`, which then holds 0 in every column.
  void admit(SlotId slot) {
    seen_ = std::max<std::size_t>(seen_, slot.value + 1);
    if (slot.value >= capacity_) return;
    for (std::uint32_t c = 0; c < columns_; ++c) at(c, slot) = T{};
  }
  void move(std::span<const SlotMove> moves) {
    if (capacity_ == 0) return;
    for (const SlotMove& m : moves) {
      for (std::uint32_t c = 0; c < columns_; ++c) at(c, m.to) = at(c, m.from);
    }
  }
  [[nodiscard]] std::span<T> column(std::uint32_t c, std::uint32_t slots) {
    take_memory();
    return {values_.data() + std::size_t{c} * capacity_, slots};
  }
  [[nodiscard]] std::span<const T> column(std::uint32_t c, std::uint32_t slots) const {
    take_memory();
    return {values_.data() + std::size_t{c} * capacity_, slots};
  }
  [[nodiscard]] std::uint64_t bytes_per_slot() const { return columns_ * sizeof(T); }
  [[nodiscard]] T& at(std::uint32_t c, SlotId slot) {
    take_memory();
    return values_[std::size_t{c} * capacity_ + slot.value];
  }
  [[nodiscard]] const T& at(std::uint32_t c, SlotId slot) const {
    take_memory();
    return values_[std::size_t{c} * capacity_ + slot.value];
  }

 private:
  void take_memory() const {
    if (seen_ > capacity_) grow(seen_);
  }
  void grow(std::size_t least) const {
    constexpr std::size_t kLine = kCacheLine / sizeof(T);
    const std::size_t capacity = std::max((least + kLine - 1) / kLine * kLine, 2 * capacity_);
    AlignedVector<T> values(columns_ * capacity);
    for (std::uint32_t c = 0; c < columns_; ++c) {
      std::copy_n(values_.data() + c * capacity_, capacity_, values.data() + c * capacity);
    }
    values_ = std::move(values);
    capacity_ = capacity;
  }

  std::uint32_t columns_;
  std::size_t seen_ = 0;  // slots that were ever admitted
  mutable std::size_t capacity_ = 0;
  mutable AlignedVector<T> values_;  // [columns][capacity]; 0 beyond what was seen
};

}  // namespace kvroof
