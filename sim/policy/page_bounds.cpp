#include "sim/policy/page_bounds.hpp"

#include <algorithm>

#include "sim/attention/attention.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

void PageBounds::drop_before(std::uint32_t page) {
  if (page <= first_) return;
  const std::size_t gone = std::min(std::size_t{page - first_} * 2 * width_, bounds_.size());
  bounds_.erase(bounds_.begin(), bounds_.begin() + static_cast<std::ptrdiff_t>(gone));
  first_ = page;
}

void PageBounds::add(TokenPos position, std::span<const float> key) {
  const std::uint32_t page = page_of(position);
  check(page >= first_ && page <= end() && key.size() == width_, "tokens join the last page or the next, in order");
  if (page == end()) {
    bounds_.insert(bounds_.end(), key.begin(), key.end());
    bounds_.insert(bounds_.end(), key.begin(), key.end());
    return;
  }
  float* largest = bounds_.data() + std::size_t{page - first_} * 2 * width_;
  float* least = largest + width_;
  for (std::size_t c = 0; c < width_; ++c) {
    largest[c] = std::max(largest[c], key[c]);
    least[c] = std::min(least[c], key[c]);
  }
}

// A channel's bound is its largest key where q is positive and its least where it is negative: a plain product with the
// two halves of q.
std::span<const float> PageBounds::products(std::span<const float> q) {
  query_.assign(2 * std::size_t{width_}, 0.0F);
  for (std::size_t c = 0; c < width_; ++c) query_[q[c] > 0 ? c : width_ + c] = q[c];
  products_.resize(pages());
  compute_logits(query_, {reinterpret_cast<const std::byte*>(bounds_.data()), DType::kF32, query_.size(), query_.size(),
                          products_.size()},
                 LogitRule{}, products_);
  return products_;
}

}  // namespace kvroof
