// What a policy that selects lets a row read, and the bounds of pages that it keeps for that.
#include <algorithm>
#include <utility>

#include "sim/core/error.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof {

void LayerPolicy::select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read,
                         const HeadRowsSource* source) {
  Head& h = heads_[head.value];
  const bool by_page = traits_.page > 0 && rows.step.value > 0;
  if (g == 0) {
    // What is selected takes the place of the whole row that admit counted.
    h.counts.attended -= h.positions.size();
    h.is_read.resize(h.positions.size());  // assign() would allocate anew for each further slot
    std::ranges::fill(h.is_read, std::uint8_t{0});
    if (by_page) {
      show_keys(head, source);
      h.counts.scored += pages_from(h, 0) * 2 * context_.head_dim;
    }
  }
  if (by_page) {
    const auto pages = static_cast<double>(pages_from(h, 0));
    h.counts.policy_flops.scoring += 2.0 * pages * context_.head_dim;
    h.counts.policy_flops.selection += pages;
  }
  const std::size_t before = read.size();
  policy_->select(head, g, rows, read);
  for (const SlotId slot : std::span(read).subspan(before)) {
    h.counts.attended += std::exchange(h.is_read[slot.value], 1) ^ 1U;
  }
}

// Pages with tokens that the head holds, none of them older than `first`. A policy with pages evicts nothing.
std::uint64_t LayerPolicy::pages_from(const Head& head, std::uint32_t first) const {
  const auto end = static_cast<std::uint32_t>(head.visible_from + head.present());
  const std::uint32_t from = std::max(first, head.visible_from);
  return from < end ? (end - 1) / traits_.page - from / traits_.page + 1 : 0;
}

// The keys of new tokens join the bounds of their pages, which are written.
void LayerPolicy::show_keys(HeadId head, const HeadRowsSource* source) {
  Head& h = heads_[head.value];
  check(source != nullptr, "a policy with pages is given the rows of k");
  HeadTensors tensors(source->rows(head), h.positions, {}, tensor_scratch_);
  policy_->add_keys(head, h.positions, tensors);
  h.counts.scored += pages_from(h, h.paged) * 2 * context_.head_dim;
  h.paged = static_cast<std::uint32_t>(h.visible_from + h.present());
  h.counts.policy_flops.scoring += tensors.flops();
}

}  // namespace kvroof
