// PageBounds: the least and the largest key of each channel over every page of a head, and what they bound.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/ids.hpp"

namespace kvroof {

// Quest: Tang et al., ICML 2024. Page p has the tokens [p · page, (p + 1) · page). Where a sliding window hides a part
// of a page, its bounds stay as wide as they were, and still bound what is left.
class PageBounds {
 public:
  PageBounds(std::uint32_t page, std::uint32_t width) : page_(page), width_(width) {}

  [[nodiscard]] std::uint32_t page_of(TokenPos position) const { return position.value / page_; }
  // Pages are numbered from 0; those before first() are gone, end() is the next to come.
  [[nodiscard]] std::uint32_t first() const { return first_; }
  [[nodiscard]] std::uint32_t end() const { return first_ + pages(); }
  [[nodiscard]] std::uint32_t pages() const { return static_cast<std::uint32_t>(bounds_.size() / (2 * width_)); }

  // Forgets the pages before `page`, whose tokens are gone.
  void drop_before(std::uint32_t page);
  // The key [width] of the token joins its page, which is the last or the next one.
  void add(TokenPos position, std::span<const float> key);
  // Of each page, Σ_c max(q_c · least_c, q_c · largest_c): no key of the page has a larger product with q [width]. The
  // result stays until the next call.
  std::span<const float> products(std::span<const float> q);

 private:
  std::uint32_t page_, width_;
  std::uint32_t first_ = 0;
  std::vector<float> bounds_;  // [pages][largest key, least key]
  std::vector<float> query_, products_;
};

}  // namespace kvroof
