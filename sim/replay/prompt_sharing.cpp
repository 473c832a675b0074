#include "sim/replay/prompt_sharing.hpp"

namespace kvroof {
namespace {

bool alike_but_for_budget(const PolicySpec& a, const PolicySpec& b) {
  const bool same_files = a.head_values == b.head_values && a.token_scores == b.token_scores;
  return a.name == b.name && a.params == b.params && a.kv == b.kv && same_files;
}

}  // namespace

bool PromptSharing::add(std::span<const PolicySpec> specs, const PointLayer& point) {
  const std::size_t self = seen_by_.size();
  std::size_t by = 0;
  while (by < self && !(seen_by_[by] == by && alike_but_for_budget(specs[by], specs[self]))) ++by;
  if (by < self && !point.shares_prompt()) by = self;
  seen_by_.push_back(by);
  return by == self;
}

void PromptSharing::share(std::span<const std::unique_ptr<PointLayer>> points, ThreadPool& pool) const {
  pool.parallel_for(points.size(), [&](std::size_t p) {
    if (seen_by_[p] != p) points[p]->share_prompt(*points[seen_by_[p]]);
  });
}

}  // namespace kvroof
