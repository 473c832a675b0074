// What a LayerPolicy counted.
#include <algorithm>

#include "sim/policy/layer_policy.hpp"

namespace kvroof {

LayerCounts LayerPolicy::take_counts() {
  LayerCounts counts;
  for (std::uint32_t h = 0; h < heads_.size(); ++h) counts += take_head_counts(HeadId(h));
  counts.allocated = allocated_;
  counts.allocated_paged = allocated_paged_;
  return counts;
}

LayerCounts LayerPolicy::take_head_counts(HeadId head) {
  Head& h = heads_[head.value];
  LayerCounts counts = std::exchange(h.counts, {});
  counts.resident = traits_.keeps_all() ? std::min<std::uint64_t>(h.present(), budget_now_) : h.present();
  counts.page_metadata = traits_.page > 0 && h.paged > 0 ? pages_from(h, 0) * 2 * context_.head_dim : 0;
  return counts;
}

void LayerPolicy::count_allocated(LayerCounts& counts) {
  allocated_ = std::max(allocated_, counts.allocated);
  allocated_paged_ = std::max(allocated_paged_, counts.allocated_paged);
  counts.allocated = allocated_;
  counts.allocated_paged = allocated_paged_;
}

std::uint64_t LayerPolicy::take_walked_state_bytes() {
  std::uint64_t walked = 0;
  for (std::uint32_t h = 0; h < heads_.size(); ++h) {
    const std::uint64_t total = policy_->walked_state_bytes(HeadId(h));
    walked += total - std::exchange(heads_[h].walked, total);
  }
  return walked;
}

std::uint64_t LayerPolicy::take_read_elements() {
  std::uint64_t elements = 0;
  for (std::uint32_t i = 0; i < heads_.size(); ++i) {
    Head& h = heads_[i];
    const std::uint64_t pages = policy_->walked_page_elements(HeadId(i));
    elements += std::exchange(h.read_elements, 0) + pages - std::exchange(h.walked_pages, pages);
  }
  return elements;
}

}  // namespace kvroof
