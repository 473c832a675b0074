#include "kernels/cuda/attention_plan.hpp"

#include <algorithm>

#include "sim/core/error.hpp"

namespace kvroof::cuda {

AttentionPlan::AttentionPlan(std::uint32_t storage_heads, std::uint32_t group, std::uint32_t unit_heads)
    : storage_heads_(storage_heads),
      group_(group),
      unit_heads_(unit_heads),
      passes_((group + unit_heads - 1) / unit_heads),
      kernel_group_(unit_heads > kMostGroup ? unit_heads : std::min(group, unit_heads)) {}

void AttentionPlan::add(std::span<const CacheSlots> heads, std::uint32_t position,
                        std::span<const std::uint32_t> lengths) {
  check(heads.size() == storage_heads_ && lengths.size() == storage_heads_, "a plan: slots of every storage head");
  const auto query = static_cast<std::uint32_t>(positions_.size());
  positions_.push_back(position);
  for (std::uint32_t s = 0; s < storage_heads_; ++s) {
    const std::uint32_t length = lengths[s];
    check(length > 0, "a plan: a query meets one slot at least");
    for (std::uint32_t pass = 0; pass < passes_; ++pass) {
      const std::uint32_t first = pass * unit_heads_;
      units_.push_back({heads[s], query, s * group_ + first, std::min(unit_heads_, group_ - first), length, 0});
      logits_at_.push_back(logit_floats_);
      logit_floats_ += std::size_t{length} * kernel_group_;
    }
    rows_ += length;
  }
}

void AttentionPlan::place_logits(float* memory) {
  for (std::size_t u = 0; u < units_.size(); ++u) units_[u].slots.logits = memory + logits_at_[u];
}

void AttentionPlan::for_rows(
    std::size_t query, std::span<const float> logits,
    const std::function<void(std::uint32_t head, std::span<float> rows, std::uint32_t length)>& body) {
  for (std::uint32_t s = 0; s < storage_heads_; ++s) {
    const std::size_t first = (query * storage_heads_ + s) * passes_;
    const std::uint32_t length = units_[first].length;
    gathered_.resize(std::size_t{group_} * length);
    for (std::uint32_t g = 0; g < group_; ++g) {
      const float* unit = logits.data() + logits_at_[first + g / unit_heads_] + g % unit_heads_;
      for (std::uint32_t slot = 0; slot < length; ++slot) {
        gathered_[std::size_t{g} * length + slot] = unit[std::size_t{slot} * kernel_group_];
      }
    }
    body(s, gathered_, length);
  }
}

void AttentionPlan::cut(unsigned blocks, unsigned width, std::uint64_t slot_bytes) {
  std::uint64_t slots = 0;
  for (const AttentionUnit& unit : units_) slots += unit.length;
  const std::uint64_t sum_bytes = sizeof(float) * kernel_group_ * width;
  item_slots_ = kItemSlots;
  while (item_slots_ < kMostItemSlots && item_slots_ * slot_bytes < 8 * sum_bytes) item_slots_ *= 2;
  // So many items a block that none has a thirtieth more than another; more would only make the tables larger.
  while (slots / item_slots_ > std::uint64_t{64} * blocks) item_slots_ *= 2;
  items_.clear();
  for (std::uint32_t u = 0; u < units_.size(); ++u) {
    units_[u].first_item = static_cast<std::uint32_t>(items_.size());
    items_.insert(items_.end(), items_of(units_[u]), u);
  }
  const auto count = static_cast<std::uint32_t>(items_.size());
  run_items_ = std::max((count + blocks - 1) / blocks, std::uint32_t{1});
}

KvSchedule AttentionPlan::schedule(std::uint32_t share) const {
  KvSchedule a;
  a.item_count = static_cast<std::uint32_t>(items_.size());
  a.item_slots = item_slots_;
  a.block_items = (run_items_ + share - 1) / share;
  for (const AttentionUnit& unit : units_) {
    const std::uint32_t last = unit.first_item + items_of(unit) - 1;
    a.most_splits = std::max(a.most_splits, last / a.block_items - unit.first_item / a.block_items + 1);
  }
  return a;
}

std::size_t AttentionPlan::split_bytes(unsigned width) const {
  return (splits() * (2 + width) + units_.size()) * kernel_group_ * sizeof(float);
}

AttentionArguments AttentionPlan::arguments(Stream& stream, DeviceBuffer& table_memory, DeviceBuffer& memory,
                                            unsigned width) {
  check(!items_.empty(), "a plan is cut before it is sent");
  const std::vector<unsigned> finished(units_.size(), 0);
  DeviceTables tables(stream, table_memory);
  const std::size_t items_at = tables.add(std::span<const std::uint32_t>(items_));
  const std::size_t units_at = tables.add(std::span<const AttentionUnit>(units_));
  const std::size_t query_at = tables.add(std::span<const std::uint32_t>(positions_));
  const std::size_t finished_at = tables.add(std::span<const unsigned>(finished));
  tables.send();
  const std::size_t scalars = splits() * kernel_group_;
  memory.reserve(split_bytes(width));
  AttentionArguments a;
  static_cast<KvSchedule&>(a) = schedule();
  a.items = tables.at<std::uint32_t>(items_at);
  a.units = tables.at<AttentionUnit>(units_at);
  a.query = tables.at<std::uint32_t>(query_at);
  a.finished = const_cast<unsigned*>(tables.at<unsigned>(finished_at));
  a.unit_heads = kernel_group_;
  a.split_out = memory.at<float>();
  a.split_max = a.split_out + scalars * width;
  a.split_sum = a.split_max + scalars;
  a.log_sums = a.split_sum + scalars;
  return a;
}

}  // namespace kvroof::cuda
