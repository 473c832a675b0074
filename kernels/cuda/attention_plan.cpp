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
      units_.push_back({heads[s], query, s * group_ + first, std::min(unit_heads_, group_ - first), 0});
      lengths_.push_back(length);
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
    const std::uint32_t length = lengths_[first];
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

void AttentionPlan::cut(unsigned multiprocessors, unsigned width, std::uint64_t slot_bytes) {
  std::uint64_t slots = 0;
  for (const std::uint32_t length : lengths_) slots += length;
  const std::uint64_t sum_bytes = sizeof(float) * kernel_group_ * width;
  std::uint32_t least = 64;
  while (least < kItemSlots && least * slot_bytes < 8 * sum_bytes) least *= 2;
  // A power of two: few rows make one and a half to three items for each multiprocessor, which run side by side; of
  // many, none has so many bytes that the last ones to end are long waited for. Smaller items would share the memory no
  // better, and each takes a beginning, an end and a part to combine.
  constexpr std::uint64_t kMostBytes = 160 << 10;
  std::uint32_t size = kItemSlots;
  while (size > least && (size * slot_bytes > kMostBytes || 2 * (slots / size) < std::uint64_t{3} * multiprocessors)) {
    size /= 2;
  }
  items_.clear();
  item_slots_ = size;
  most_parts_ = 1;
  for (std::uint32_t u = 0; u < units_.size(); ++u) {
    units_[u].parts = 0;
    for (std::uint32_t first = 0; first < lengths_[u]; first += size) {
      items_.push_back({u, first, std::min(size, lengths_[u] - first), units_[u].parts++});
    }
    most_parts_ = std::max(most_parts_, units_[u].parts);
  }
}

std::size_t AttentionPlan::part_bytes(unsigned width) const {
  return (parts() * (2 + width) + units_.size()) * kernel_group_ * sizeof(float);
}

AttentionArguments AttentionPlan::arguments(Stream& stream, DeviceBuffer& table_memory, DeviceBuffer& parts,
                                            unsigned width) {
  check(!items_.empty(), "a plan is cut before it is sent");
  const std::vector<std::uint32_t> count = {static_cast<std::uint32_t>(items_.size())};
  const std::vector<unsigned> finished(units_.size(), 0);
  DeviceTables tables(stream, table_memory);
  const std::size_t items_at = tables.add(std::span<const AttentionItem>(items_));
  const std::size_t count_at = tables.add(std::span<const std::uint32_t>(count));
  const std::size_t units_at = tables.add(std::span<const AttentionUnit>(units_));
  const std::size_t query_at = tables.add(std::span<const std::uint32_t>(positions_));
  const std::size_t finished_at = tables.add(std::span<const unsigned>(finished));
  tables.send();
  const std::size_t scalars = this->parts() * kernel_group_;
  parts.reserve(part_bytes(width));
  AttentionArguments a;
  a.items = tables.at<AttentionItem>(items_at);
  a.item_count = tables.at<std::uint32_t>(count_at);
  a.units = tables.at<AttentionUnit>(units_at);
  a.query = tables.at<std::uint32_t>(query_at);
  a.finished = const_cast<unsigned*>(tables.at<unsigned>(finished_at));
  a.unit_heads = kernel_group_;
  a.most_parts = most_parts_;
  a.part_out = parts.at<float>();
  a.part_max = a.part_out + scalars * width;
  a.part_sum = a.part_max + scalars;
  a.log_sums = a.part_sum + scalars;
  return a;
}

}  // namespace kvroof::cuda
