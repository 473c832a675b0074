// Cuts the attention of a set of queries into work items, of which each block but the last takes as many, so that
// blocks balance whatever the lengths (split-KV).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/cuda/device_tables.hpp"

namespace kvroof::cuda {

// A query meets every storage head of its layer's cache: one unit each, or several where more query heads share it than
// the kernel takes together.
class AttentionPlan {
 public:
  // `group` query heads share each of the storage heads; the kernel takes up to `unit_heads` of them together.
  AttentionPlan(std::uint32_t storage_heads, std::uint32_t group, std::uint32_t unit_heads = kMostGroup);

  // One query at `position` over the first lengths[s] ≥ 1 slots of each storage head; heads[s] are head s's.
  void add(std::span<const CacheSlots> heads, std::uint32_t position, std::span<const std::uint32_t> lengths);

  // Gives every unit a place for its logits in `memory`, which holds logit_floats().
  [[nodiscard]] std::size_t logit_floats() const { return logit_floats_; }
  void place_logits(float* memory);
  // Calls body(head, rows [group, length], length) for each storage head of query i; `logits` is that memory, copied.
  // The rows are scratch, which the body may change.
  void for_rows(std::size_t query, std::span<const float> logits,
                const std::function<void(std::uint32_t head, std::span<float> rows, std::uint32_t length)>& body);

  // Slots that the plan's attention reads, over all units.
  [[nodiscard]] std::uint64_t rows() const { return rows_; }
  [[nodiscard]] unsigned kernel_group() const { return kernel_group_; }
  [[nodiscard]] std::uint32_t storage_heads() const { return storage_heads_; }
  [[nodiscard]] std::uint32_t group() const { return group_; }
  [[nodiscard]] std::uint32_t passes() const { return passes_; }          // units of a storage head
  // Without the tables, which arguments() sends; for `share` times the blocks that attention takes.
  [[nodiscard]] KvSchedule schedule(std::uint32_t share = 1) const;
  [[nodiscard]] std::size_t splits() const { return units_.size() * schedule().most_splits; }
  [[nodiscard]] std::size_t split_bytes(unsigned width) const;  // that arguments() needs
  [[nodiscard]] std::span<const AttentionUnit> units() const { return units_; }

  // Sends the plan and makes room for its splits; what the plan does not know is the caller's to fill in.
  AttentionArguments arguments(Stream& stream, DeviceBuffer& tables, DeviceBuffer& splits, unsigned width);

  // Shares the slots among up to `blocks` blocks. Call before arguments(). None has so few that its sums, of `width`
  // columns, which are written and read again, are more than an eighth of its rows, of `slot_bytes` each.
  void cut(unsigned blocks, unsigned width, std::uint64_t slot_bytes);

 private:
  static constexpr std::uint32_t kMostItemSlots = 1024;

  [[nodiscard]] std::uint32_t items_of(const AttentionUnit& unit) const {
    return (unit.length + item_slots_ - 1) / item_slots_;
  }

  std::uint32_t storage_heads_, group_, unit_heads_, passes_;
  unsigned kernel_group_;
  std::uint64_t rows_ = 0;
  std::size_t logit_floats_ = 0;
  std::uint32_t item_slots_ = kItemSlots;
  std::uint32_t run_items_ = 1;
  std::vector<AttentionUnit> units_;
  std::vector<std::uint32_t> items_;       // the unit of each
  std::vector<std::size_t> logits_at_;     // of each unit, in floats
  std::vector<std::uint32_t> positions_;   // of each query
  std::vector<float> gathered_;
};

}  // namespace kvroof::cuda
